"""The tables of speed in README.md and docs/, from the last rows in the results.

python -m benchmarks.page
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import default_tol
from benchmarks.corpus import table as corpus
from benchmarks.report import written

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).with_name("results")

#: A row of a benchmark, as it was kept.
Kept = Mapping[str, Any]


class Line(NamedTuple):
    """What a line of the table says, and the rows that it has its ratios from."""

    text: str
    benchmark: str
    case: str = ""  # how it begins
    sizes: Mapping[str, int] = {}  # some of them
    target: float | None = None  # where the rows have none
    spread: bool = False  # the median and the largest ratio instead of all
    front: bool = False  # in the README too


_LARGE = {"n": 20_000, "d": 1000, "m": 1000}
LINES = (
    Line(
        "`TraceNormClassifier(radius=2000)` over `LogisticRegression(C=10)` on its best number of "
        "threads, CLINC150: wall time, processor time",
        "estimators_clinc",
        "CLINC150, fit",
        front=True,
    ),
    Line(
        "`TraceNormClassifierCV(radii=8, cv=3)` over `LogisticRegressionCV(Cs=8, cv=3)` there",
        "estimators_clinc",
        "CLINC150, search",
        front=True,
    ),
    Line(
        "to the test accuracy of `LogisticRegression` at its best C, 380 languages as sparse "
        "counts, n=18298, d=5000: wall time, processor time",
        "estimators_clinc",
        "UDHR",
        front=True,
    ),
    Line(
        "to the objective that DFW-Trace with K=2 has after 100 epochs, over its time, "
        "multinomial, n=20000, d=m=1000, radius 10, 50, 100",
        "accelerated",
        "to dfw's",
        front=True,
    ),
    Line(
        "the same to a certified relative gap of 1e-4",
        "accelerated",
        "to a certified relative gap of 0.0001",
    ),
    Line(
        "least squares to a certified relative gap of 1e-6, n=50000, d=m=1000, over NumPy's XᵀX "
        "and XᵀY on all cores",
        "accelerated_least_squares",
        "to 1e-6, / products",
        front=True,
    ),
    Line("the same over scikit-learn's `Ridge`", "accelerated_least_squares", "to 1e-6, / ridge"),
    Line(
        "least squares to F* + 0.001·F(0), n=20000, d=m=200, over dense projected gradient with "
        "full SVDs in NumPy",
        "peers",
        "multi-task, dense projected gradient, 0.001",
        {"n": 20_000},
        target=1.0,
        front=True,
    ),
    Line(
        "multinomial to F* + 1e-4·F(0), n=20000, d=m=1000, over dense accelerated projected "
        "gradient with full SVDs",
        "accelerated_dense",
    ),
    Line(
        "passes over those of the former solver to a certified relative gap of 1e-4, corpus of 96 "
        "problems: median, worst",
        "corpus",
        spread=True,
        front=True,
    ),
    Line("rounds for an epoch with an intercept, CLINC150", "estimators_clinc", "CLINC150, rounds"),
    Line(
        "an epoch of DFW-Trace, multinomial, n=20000, d=m=1000, K=2, float32, over the time to "
        "read its bytes from memory",
        "epoch_floor",
        "float32, K=2, 2 threads",
        _LARGE,
        front=True,
    ),
    Line(
        "least squares by DFW-Trace, 100 epochs with certificate, over NumPy's XᵀX and XᵀY: "
        "n=100000, d=m=300, and n=50000, d=m=1000",
        "least_squares",
        "float64, 100 epochs",
    ),
    Line(
        "a round of 1000 numbers with resident Spark workers over a Spark job that does the same: "
        "our own, the leanest by hand",
        "spark_rounds",
        sizes={"numbers": 1000},
        front=True,
    ),
    Line("an epoch on `SparkEngine` over one on `LocalEngine`", "spark_epoch", "resident / local"),
    Line(
        "an epoch on `SparkMapReduceEngine` over one on `SparkEngine`", "spark_epoch", "map-reduce"
    ),
    Line("the last third of 300 map-reduce epochs over the first", "spark_long"),
    Line(
        "a DataFrame to shards on the workers, 20000×1000, over reading its Parquet with pyarrow",
        "spark_loading",
    ),
    Line(
        "memory that a run adds at n=500, d=m=20000 over one dense d×m matrix: least squares and "
        "multinomial, each dense and sparse",
        "memory",
        front=True,
    ),
    Line(
        "peak memory at the paper's ImageNet size, n=1281167, d=2048, m=1000, over 20 GiB",
        "imagenet_size",
    ),
    Line(
        "`predict` through factors of rank 30 over dense coefficients, d=2048, m=1000", "prediction"
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write all tables."""
    rows = read()
    for name, kind, _ in TABLES:
        text = (ROOT / name).read_text(encoding="utf-8")
        (ROOT / name).write_text(with_table(text, name, kind, rows), encoding="utf-8")
    return 0


def with_table(text: str, name: str, kind: str, rows: Sequence[Kept]) -> str:
    """The page of that name with its table of that kind."""
    (make,) = (make for *place, make in TABLES if place == [name, kind])
    return written(text, f"<!-- {kind}: begin -->\n", f"<!-- {kind}: end -->\n", make(rows))


def read(folder: Path = RESULTS) -> list[Kept]:
    """All rows, by date."""
    files = sorted(folder.glob("*.jsonl"))
    lines = (line for file in files for line in file.read_text(encoding="utf-8").splitlines())
    return sorted(map(json.loads, lines), key=lambda row: str(row["date"]))


def markdown(rows: Sequence[Kept], *, front: bool) -> str:
    """The table; that of the README is short."""
    lines = ["| | ratio |", "|---|--:|"]
    if not front:
        lines = ["| | ratio | target | measured |", "|---|--:|--:|---|"]
    for line in LINES:
        found = list(_last(rows, line))
        if not found or (front and not line.front):
            continue
        ratios = [float(row["ratio"]) for row in found]
        shown = [float(np.median(ratios)), max(ratios)] if line.spread else ratios
        cells = [line.text, ", ".join(f"{ratio:.2g}" for ratio in shown)]
        if not front:
            target = found[0]["target"] if line.target is None else line.target
            missed = target is not None and max(ratios) > target
            cells.append("" if target is None else f"≤ {target:g}" + ", missed" * missed)
            cells.append(" ".join(sorted({f"{row['date'][:10]} {row['commit']}" for row in found})))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _last(rows: Sequence[Kept], line: Line) -> Iterator[Kept]:
    """The rows that the line is about, of the last run that has any."""
    matching = [
        row
        for row in rows
        if row["benchmark"] == line.benchmark
        and row["case"].startswith(line.case)
        and line.sizes.items() <= row["sizes"].items()
    ]
    return (row for row in matching if row["date"] == matching[-1]["date"])


#: A page, the kind of table between its markers, and what makes it from all rows.
TABLES: tuple[tuple[str, str, Callable[[Sequence[Kept]], str]], ...] = (
    ("README.md", "speed", partial(markdown, front=True)),
    ("docs/benchmarks.md", "speed", partial(markdown, front=False)),
    ("docs/benchmarks.md", "corpus: summary", corpus.summary),
    ("docs/benchmarks.md", "corpus: problems", corpus.problems),
    ("docs/estimators.md", "default_tol", default_tol.markdown),
)


if __name__ == "__main__":
    sys.exit(main())
