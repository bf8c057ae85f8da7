"""What each constant and each part of the accelerated solver is worth, on problems of the corpus.

Every setting runs on the same problems as the solver of today does. A run that ends uncertified
counts as so many times more passes as its gap is too large.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.corpus import methods, runs
from benchmarks.corpus.problems import NAMES, Problem, load_all
from benchmarks.report import written
from dfwtrace.solvers import accelerated, block_oracle, columns, factors, lbfgs, metric, projection
from dfwtrace.solvers.problem import Problem as OurProblem

MODULES = {
    module.__name__.rpartition(".")[2]: module
    for module in (accelerated, columns, factors, metric, block_oracle, projection, lbfgs)
}
PAGE = Path(__file__).parents[1] / "docs" / "solver.md"
BEGIN, END = "<!-- ablation: begin -->\n", "<!-- ablation: end -->\n"
# Problems that are slow, or that end where rounding hides the gap: all settings do alike there.
_LEFT_OUT = (
    "squares, sparse, float32",
    "squares, d·m = 3e7",
    "classes, d·m = 3e7",
    "classes, raw units 1e6",
    "text",
    "CLINC150",
    "UDHR",
    "classes, rare",
    "classes, sparse, intercept, float32",
    "weights 1e9",
)
_MAX_SECONDS = 600.0  # so that a run ends by its epochs, whatever else the machine does
_TINY = 1e-3  # constants below this are varied by a hundred, others by two

#: Every constant of the solver, with a value that turns it off where there is one.
CONSTANTS: dict[str, float | None] = {
    "accelerated._PROBES": None,
    "accelerated._FIRST_PROBES": None,
    "accelerated._GROWTH": None,
    "accelerated._MOST_PROBES": None,
    "accelerated._SHORTEST": 0.999,  # whole steps only
    "accelerated._TRIM": 0.0,
    "accelerated._PATIENCE": 10**9,
    "accelerated._LAST_PRODUCTS": None,
    "accelerated._SLOW": -1,  # no projections
    "columns._LOOSE": None,
    "metric._WHOLE": 0,  # the diagonal of H where H is not gathered
    "metric._DIRECTIONS": None,
    "metric._SPARE": None,
    "metric._ITERATIONS": None,
    "metric._WIDE": 0,  # the diagonal of H where H is not decomposed
    "metric._EVEN": 0.0,  # never the diagonal
    "metric._ALIKE": 0.0,  # no projections
    "metric._VECTORS": None,
    "metric._RESIDUAL": 0.0,
    "metric._MOST": None,
    "projection._STEPS": 1,
    "projection._LARGE": np.inf,  # all in float64
    "projection._APART": None,
    "lbfgs._PAIRS": None,
    "lbfgs._FEWEST": None,
    "lbfgs._MEMORY": None,
}

#: An object, the name of its attribute, and what takes its place.
Patch = tuple[Any, str, Any]


@dataclass(frozen=True)
class Setting:
    """One change of the solver."""

    name: str
    value: str = ""
    patches: tuple[Patch, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.name} = {self.value}" if self.value else self.name


@dataclass(frozen=True)
class Record:
    """What a setting took on each problem: passes, a missed gap counted, and seconds."""

    label: str
    passes: dict[str, float]
    seconds: dict[str, float]
    uncertified: tuple[str, ...]


TODAY = Setting("today")


def constants_of(module: ModuleType) -> dict[str, float]:
    """The module's own constants that are numbers."""
    return {
        name: value
        for name, value in vars(module).items()
        if re.fullmatch("_[A-Z_]+", name) and isinstance(value, int | float)
    }


def variations(name: str) -> Iterator[Setting]:
    """Off, less and more of a constant."""
    file, constant = name.split(".")
    module, off = MODULES[file], CONSTANTS[name]
    value = constants_of(module)[constant]
    factor = 100 if value < _TINY else 2
    less = value // factor if isinstance(value, int) else value / factor
    for other in dict.fromkeys((*(() if off is None else (off,)), less, value * factor)):
        text = f"{other:g}, off" if other == off else f"{other:g}"
        yield Setting(f"`{name}`", text, ((module, constant, other), *_defaults(value, other)))


def _defaults(value: float, other: float) -> Iterator[Patch]:
    """The same where it is the default of an argument, which has the value already."""
    for method in vars(accelerated.Descent).values():
        if getattr(method, "__defaults__", None) == (value,):
            yield method, "__defaults__", (other,)


# Parts that are switched off


class _NoPairs(lbfgs.LBFGS):
    def remember(self, dx: Any, dg: Any) -> None:
        """Keep nothing."""


def _random_probes(point: Any, *rest: Any) -> block_oracle.Probes:
    (d, m), nothing = point.W.shape, np.zeros((0, 0))
    images = nothing.reshape(d, 0), nothing.reshape(m, 0)
    return block_oracle.next_probes(point._replace(images=images), *rest)


def _forget(descent: Any, more: int) -> None:
    descent._lbfgs = lbfgs.LBFGS()


def _evenly_curved_columns(*arguments: Any) -> factors.Point:
    point = factors.evaluate(*arguments)
    even = np.ones_like(point.columns.relative)
    return point._replace(columns=point.columns._replace(relative=even))


def _no_gradient(model: Any) -> tuple[Any, ...]:
    return tuple(np.zeros((size, 1)) for size in (*model._shape, *model._shape))


def _one_pair(point: factors.Point) -> block_oracle.Pairs:
    pairs = block_oracle.outside_pairs(point)
    return block_oracle.Pairs(pairs.U[:, :1], pairs.s[:1], pairs.V[:, :1])


def _seed(more: int) -> Patch:
    prepare = OurProblem.prepare_run

    def other(problem: OurProblem, radius: float, seed: int) -> None:
        prepare(problem, radius, seed + more)

    return OurProblem, "prepare_run", other


def _answer(value: Any) -> Callable[..., Any]:
    return lambda *_: value


_DESCENT = accelerated.Descent
_PARTS: dict[str, Patch] = {
    "no frame": (_DESCENT, "_promise", _answer(-np.inf)),
    "no ridge at the start": (_DESCENT, "_ridge", _answer(False)),
    "no metric": (accelerated, "metric_of", _answer(None)),
    "all columns of scores alike": (accelerated, "evaluate", _evenly_curved_columns),
    "no pairs of L-BFGS": (accelerated, "LBFGS", _NoPairs),
    "pairs forgotten with new columns": (_DESCENT, "_remember_wider", _forget),
    "no Newton": (metric.Metric, "exact", False),
    "Newton without G's own term": (metric.Model, "_gradient", property(_no_gradient)),
    "no projection": (_DESCENT, "_project", _answer(False)),
    "no trimming": (_DESCENT, "_trimming", _answer(np.positive)),
    "what trimming frees is not kept in z": (accelerated, "with_slack", lambda x, *_: x),
    "fresh probes each epoch": (accelerated, "next_probes", _random_probes),
    "one new column at a time": (accelerated, "outside_pairs", _one_pair),
}
PARTS = tuple(Setting(name, "", (patch,)) for name, patch in _PARTS.items())
SEEDS = tuple(Setting("another seed", str(k), (_seed(k),)) for k in (1, 2, 3))


def settings() -> list[Setting]:
    """All of them: seeds, which show what is chance, parts, and constants."""
    return [*SEEDS, *PARTS, *(one for name in CONSTANTS for one in variations(name))]


# Runs


def subset() -> tuple[str, ...]:
    """The problems."""
    return tuple(name for name in NAMES if not any(re.match(one, name) for one in _LEFT_OUT))


def measure(setting: Setting, problems: Sequence[Problem]) -> Record:
    """Run the solver with a setting on all problems."""
    record = Record(setting.label, passes := {}, seconds := {}, ())
    failed = []
    with ExitStack() as stack:
        for patch in setting.patches:
            stack.enter_context(mock.patch.object(*patch))
        for problem in problems:
            found = runs.run_on(problem, "ours")
            passes[problem.name], seconds[problem.name] = found["passes"], found["seconds"]
            if found["status"] != "optimal":
                gap = found["checked"] if found["status"] == "wrong" else found["gap"]
                passes[problem.name] *= max(gap / problem.tol, 1.0)
                failed.append(problem.name)
    return Record(record.label, passes, seconds, tuple(failed))


def read(file: Path) -> dict[str, Record]:
    """The last record of each setting."""
    lines = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return {line["label"]: Record(**line) for line in lines}


# The table


def markdown(records: Mapping[str, Record]) -> str:
    """A line for each setting, over the solver of today."""
    today = records[TODAY.label]
    lines = [
        "| | set to | passes | seconds | worst problem | uncertified |",
        "|---|--:|--:|--:|---|--:|",
        f"| {TODAY.name} | | 1 | 1 | | {len(today.uncertified)} |",
    ]
    for setting in settings():
        if setting.label not in records:
            continue
        record = records[setting.label]
        passes = {name: count / today.passes[name] for name, count in record.passes.items()}
        seconds = [spent / today.seconds[name] for name, spent in record.seconds.items()]
        worst = max(passes, key=passes.__getitem__)
        cells = [
            setting.name,
            setting.value,
            f"{_mean([*passes.values()]):.2f}",
            f"{_mean(seconds):.2f}",
            f"{passes[worst]:.2g}: {worst}" if passes[worst] > 1.0 else "",
            f"{len(record.uncertified)}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _mean(ratios: Sequence[float]) -> float:
    """The geometric one."""
    return float(np.exp(np.mean(np.log(ratios))))


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parse(arguments)
    chosen = [one for one in settings() if re.search(asked.only, one.label)]
    if asked.only != "nothing":
        names = tuple(asked.problems or subset())
        problems = [replace(problem, max_seconds=_MAX_SECONDS) for problem in load_all(names)]
        methods.warm_up()
        measure(TODAY, problems[:10])  # or the first setting's seconds were of cold caches
        with asked.file.open("a", encoding="utf-8") as lines:
            for setting in (TODAY, *chosen):
                record = measure(setting, problems)
                lines.write(json.dumps(asdict(record), ensure_ascii=False) + "\n")
                lines.flush()
                print(setting.label, f"{sum(record.seconds.values()):.1f} s", flush=True)
    table = markdown(read(asked.file))
    print(table)
    if asked.write is not None:
        page = asked.write.read_text(encoding="utf-8")
        asked.write.write_text(written(page, BEGIN, END, table), encoding="utf-8")
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ablation", description=__doc__)
    parser.add_argument(
        "file", type=Path, help="file to add a line to for each setting; the last of one counts"
    )
    parser.add_argument(
        "--only",
        default="",
        metavar="PATTERN",
        help="settings whose names this expression matches; 'nothing' only prints the table",
    )
    parser.add_argument(
        "--problems", nargs="+", metavar="NAME", help="of the corpus, in the place of the usual"
    )
    parser.add_argument(
        "--write",
        type=Path,
        nargs="?",
        const=PAGE,
        metavar="PAGE",
        help="put the table into this page (%(const)s)",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
