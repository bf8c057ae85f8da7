"""Many classes, few directions: 150 intents, and a model of less than half the size.

Run it as a script, or cell by cell in an editor that knows `# %%`.
"""

# %% The data: embeddings of sentences that people say to an assistant, and what they want.
from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.linear_model import LogisticRegression

import dfwtrace as dt

FOLDER = Path(__file__).parent / "clinc150"


def read(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings in single precision, and the names of the intents."""
    with np.load(FOLDER / name) as file:
        return file["X"].astype(np.float32), file["y"]


def size(*arrays: np.ndarray) -> str:
    """Of a model's numbers in single precision."""
    return f"{sum(array.size for array in arrays) * 4 / 1024:.0f} KiB"


# %% Two models: scikit-learn's, with a dense matrix of coefficients, and ours, with factors.
def compare(radii: tuple[float, ...] = (500.0, 1000.0, 2000.0)) -> list[tuple[str, ...]]:
    """A row for each model: its name, test accuracy, rank, size and seconds to fit."""
    X, y = read("train.npz")
    X_test, y_test = read("test.npz")
    rows = []

    began = time.perf_counter()
    dense = LogisticRegression(C=10.0, max_iter=1000).fit(X, y)
    seconds = time.perf_counter() - began
    accuracy = f"{dense.score(X_test, y_test):.3f}"
    name = "LogisticRegression(C=10)"
    kept = size(dense.coef_, dense.intercept_)
    rows.append((name, accuracy, f"{min(dense.coef_.shape)}", kept, f"{seconds:.1f}"))

    for radius in radii:
        began = time.perf_counter()
        model = dt.TraceNormClassifier(radius=radius, tol=1e-3).fit(X, y)
        seconds = time.perf_counter() - began
        W, accuracy = model.low_rank_, f"{model.score(X_test, y_test):.3f}"
        kept = size(W.U, W.s, W.V, model.intercept_)
        name = f"TraceNormClassifier(radius={radius:g})"
        rows.append((name, accuracy, f"{W.rank}", kept, f"{seconds:.1f}"))
    return rows


# %% What a model file holds, and that it predicts the same.
def round_trip() -> bool:
    """Whether a model is the same after a way through a file."""
    X, y = read("train.npz")
    X_test, _ = read("test.npz")
    model = dt.TraceNormClassifier(radius=500.0, tol=1e-2).fit(X, y)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "intents.safetensors"
        model.save(path)
        again = dt.load(path)
    return bool((again.predict(X_test) == model.predict(X_test)).all())


# %%
def main() -> None:
    table = Table(title="150 intents, 4500 sentences to learn from, 1500 to test on")
    for column in ("model", "test accuracy", "rank", "size", "seconds"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for row in compare():
        table.add_row(*row)
    Console().print(table)
    print("the same after a way through a file:", round_trip())


if __name__ == "__main__":
    main()
