"""150 intents and a low-rank model: fitted, compared, used and reported.

    python examples/demo.py [--out DIR]

The data are embeddings of sentences that people say to an assistant; see clinc150/README.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

try:
    import numpy as np
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    import dfwtrace as dt
    from dfwtrace.report import Report, require_report, write_report
except KeyboardInterrupt:  # imports take a second or two: Ctrl-C may come already now
    sys.exit(130)

FOLDER = Path(__file__).parent / "clinc150"
RADIUS, TOL = 1500.0, 1e-3


def read(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return embeddings in single precision, and the names of the intents."""
    with np.load(FOLDER / name) as file:
        return file["X"].astype(np.float32), file["y"]


def fit(X: np.ndarray, y: np.ndarray, verbose: bool) -> dt.TraceNormClassifier:
    """Fit with a radius that cross-validation found."""
    return dt.TraceNormClassifier(radius=RADIUS, tol=TOL, verbose=verbose).fit(X, y)


def row(accuracy: float, rank: int, gap: str, numbers: int, seconds: float) -> list[str]:
    """Return a row of the table; the size is that of a model's numbers in single precision."""
    return [f"{accuracy:.3f}", str(rank), gap, f"{4 * numbers / 1024:.0f} KiB", f"{seconds:.1f}"]


def draw(model: dt.TraceNormClassifier, path: Path) -> None:
    """Draw the gap by epochs, and the singular values."""
    from matplotlib.figure import Figure

    left, right = (figure := Figure((9.0, 3.4), layout="constrained")).subplots(1, 2)
    dt.plotting.ConvergenceDisplay.from_estimator(model, left)
    dt.plotting.SpectrumDisplay.from_estimator(model, right)
    figure.savefig(path, dpi=120)


def run(out: Path) -> None:
    require_report()
    (X, y), (X_test, y_test) = read("train.npz"), read("test.npz")
    print(f"150 intents, {len(y)} sentences to learn from, {len(y_test)} to test.", flush=True)
    fit(X[:1500], y[:1500], verbose=False)  # compiles: no time below has the compiler's in it
    times = [time.perf_counter()]
    model = fit(X, y, verbose=True)
    times.append(time.perf_counter())
    with threadpool_limits(1):  # it is no faster with more, and slower on a busy machine
        dense = LogisticRegression(C=10.0, max_iter=1000).fit(X, y)
    times.append(time.perf_counter())

    result, W, predicted = model.result_, model.low_rank_, model.predict(X_test)
    accuracy, gap = float((predicted == y_test).mean()), f"{result.relative_gap:.1e}"
    seconds, full = np.diff(times), dense.coef_.size + dense.intercept_.size
    kept = sum(part.size for part in (W.U, W.s, W.V, model.intercept_))
    rank, reached = np.linalg.matrix_rank(dense.coef_), dense.score(X_test, y_test)
    table = Table("", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("test accuracy", "rank", "certified gap", "size", "seconds"):
        table.add_column(name, justify="right")
    table.add_row("TraceNormClassifier", *row(accuracy, W.rank, gap, kept, seconds[0]))
    table.add_row("LogisticRegression", *row(reached, rank, "none", full, seconds[1]))
    Console().print(table)
    print(f"Certified: no W with ‖W‖_* ≤ {RADIUS:g} has F(W) lower by more than {gap} F(0).")
    print("\nSome sentences of the test set:")
    for true, found in zip(y_test[:5], predicted[:5], strict=True):
        print(f"  {true:<18} {'recognised' if true == found else f'taken for {found}'}")

    names = {"file": "train.npz", "target_names": ["intent"], "source": "examples/clinc150"}
    page = Report.of_estimator(model, X, y, test=(X_test, y_test), **names)
    out.mkdir(parents=True, exist_ok=True)
    write_report(out / "report.html", page)
    draw(model, out / "demo.png")
    model.save(out / "intents.safetensors")
    print(f"\nIn {out}: the page report.html, the picture demo.png, the model intents.safetensors.")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("demo-output"), metavar="DIR")
    try:
        run(parser.parse_args(argv).out)
    except KeyboardInterrupt:
        print("Interrupted.")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
