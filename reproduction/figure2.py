"""Figure 2: multinomial logistic regression on synthetic data, at three radii."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from reproduction import comparison
from reproduction.claims import Claim, Judged, claim, listed
from reproduction.comparison import Problems, epoch_ms, error, objective
from reproduction.data import cached, classification, multiclass
from reproduction.methods import COMPARED, PAPER, VARIANTS, Options, Scale, follow, runs_of
from reproduction.page import Shown
from reproduction.rows import MissingRowError, Row, Settings

NAME = "figure 2"
TITLE = "Figure 2: multinomial logistic regression"
KEYS = ("method", "radius")
ABOUT = (
    "X is Gaussian, and a row's class is that of the highest score in XW, W of rank 10; as many "
    "rows again to test on. All Frank-Wolfe methods step by 2/(t+2); DFW-log takes "
    "K = ⌊1 + 0.5 log t⌋, log to base 10, and so is DFW-1 until t = 100. The form of the data is "
    "the one that the library takes by itself: mostly implicit, the paper's low-rank "
    "representation, in which Naive has to form the gradient and the others have not. In the "
    "paper's dense one, every method forms it: DFW-2 is measured in that, too."
)
CLAIMS: list[Claim] = []

RADII = (10.0, 50.0, 100.0)
#: Rows, d = m, epochs, workers.
_SIZES: dict[Scale, tuple[int, int, int, int]] = {
    "toy": (300, 12, 6, 3),
    "small": (10_000, 200, 120, 8),
    "paper": (100_000, 1000, 110, 24),
}
#: Test errors are computed every this number of epochs.
_EVERY: dict[Scale, int] = {"toy": 2, "small": 5, "paper": 10}
_DENSE = "DFW-2 (dense)"


def runs(options: Options) -> list[Settings]:
    """Every method at every radius."""
    n, d, epochs, shards = _SIZES[options.scale]
    sizes = {"n": n, "d": d, "m": d, "shards": shards, "epochs": epochs}
    methods = (*COMPARED, _DENSE)
    return [run for radius in RADII for run in runs_of(methods, radius=radius, **sizes)]


def measure(options: Options, run: Settings) -> dict[str, Any]:
    """Solve by one method."""
    problem = classification(cached(multiclass, run["n"], run["d"], run["m"]), run["radius"])
    form = "dense" if run["method"] == _DENSE else "auto"
    every = _EVERY[options.scale]
    return follow(problem, run, step="harmonic", every=every, representation=form)


def group(rows: Sequence[Row]) -> Problems:
    """Rows by radius and method."""
    return comparison.by_problem(rows, "radius", lambda settings: f"μ = {settings['radius']:g}")


def show(problems: Problems) -> Shown:
    """Objective and top-5 error against epochs and time."""
    return comparison.show(problems, {"top-1": "top-1 error", "top-5": "top-5 error"}, "top-5")


def _ratios(
    problems: Problems, one: str, others: Sequence[str], choose: Callable[..., float]
) -> dict[str, float]:
    """One method's last objective over the best (min) or worst (max) of some others'."""
    if len(problems) < len(RADII):
        raise MissingRowError("There are not rows of all radii.")
    return {
        title: objective(methods[one]) / choose(objective(methods[name]) for name in others)
        for title, methods in problems.items()
    }


def _epochs(problems: Problems, one: str, choose: Callable[[list[float]], float]) -> str:
    return ", ".join(
        f"{title} {comparison.epochs_in_which(methods, one, choose)}"
        for title, methods in problems.items()
    )


@claim(
    CLAIMS,
    "With steps of 2/(t+2), which do not depend on F, an inexact pair can be the better step: F is "
    "no longer lowered most by the pair that its linear model likes best.",
)
def _naive_is_best(problems: Problems) -> Judged:
    """Naive-DFW is best per epoch in the objective."""
    behind = _ratios(problems, "Naive", PAPER, min)
    return (
        f"Naive's objective over the best of the five at the end: {listed(behind, '.4f')}. "
        f"Epochs in which it is lowest: {_epochs(problems, 'Naive', min)}.",
        max(behind.values()) <= 1.005,
    )


@claim(
    CLAIMS,
    "The average of the workers' pairs can be nearer to the exact pair than what one power "
    "iteration from a random start finds.",
)
def _sva_is_worst(problems: Problems) -> Judged:
    """SVA falls behind all others."""
    others = ("Naive", *VARIANTS)
    ratios = _ratios(problems, "SVA", others, max)
    agreement = _ratios(problems, "SVA (agreement)", others, max)
    return (
        f"SVA's objective over the worst of the others at the end: {listed(ratios, '.4f')}. "
        f"Epochs in which it is highest: {_epochs(problems, 'SVA', max)}. With signs that agree "
        f"best: {listed(agreement, '.4f')}.",
        min(ratios.values()) >= 1.0,
    )


@claim(
    CLAIMS,
    "Where many singular values are alike, two iterations from a random start do not part them.",
)
def _two_are_nearly_exact(problems: Problems) -> Judged:
    """Two power iterations nearly match the exact solution."""
    ratios = _ratios(problems, "DFW-2", ("Naive",), min)
    words = f"DFW-2's objective over Naive's at the end: {listed(ratios, '.4f')}."
    return words, max(ratios.values()) <= 1.1


@claim(
    CLAIMS,
    "Noise in the pairs mixes more directions into W, which helps where the radius is too small "
    "for the data; how much it helps depends on the draw.",
)
def _one_is_best(problems: Problems) -> Judged:
    """DFW-1 is best in error at μ = 10."""
    if "μ = 10" not in problems:
        raise MissingRowError("There are no rows of μ = 10.")
    errors = {name: error(problems["μ = 10"][name], "top-5") for name in PAPER}
    words = f"Top-5 error at the end: {listed(errors, '.4f')}."
    return words, errors["DFW-1"] <= min(errors.values())


@claim(
    CLAIMS,
    "The target is nearly what the worst of them ends with, which a variant with coarser pairs may "
    "reach late; its cheaper epochs make up for that where d and m are large. Where all workers "
    "are on one machine, what Naive sends costs nothing.",
)
def _dfw_is_faster(problems: Problems) -> Judged:
    """All DFW variants beat the baselines in time."""
    return comparison.dfw_is_faster(problems)


@claim(
    CLAIMS,
    "Both form the gradient in every epoch. What Naive does beyond that is to send it, which costs "
    "nothing on one machine, and to find the exact pair of a small matrix.",
    "beyond",
)
def _dense_is_faster(problems: Problems) -> Judged:
    """An epoch of DFW-2 in its dense form is faster than one of Naive."""
    words, holds = [], True
    for title, methods in problems.items():
        times = {name: epoch_ms(methods[name]) for name in ("Naive", "DFW-2", _DENSE)}
        words.append(f"{title}, milliseconds of an epoch: {listed(times)}")
        holds &= times[_DENSE] < times["Naive"]
    return f"{'; '.join(words)}.", holds


claim(CLAIMS, comparison.ACCELERATED_REASON, "beyond")(comparison.accelerated_goes_further)
