"""Figure 3: ImageNet's features where there are any, and what stands in for them where not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from reproduction import comparison
from reproduction.claims import Claim, Judged, Kind, claim, listed
from reproduction.comparison import Problems, error, time_to_error
from reproduction.data import (
    cached,
    classification,
    identity,
    multiclass,
    read_imagenet,
    read_intents,
)
from reproduction.methods import COMPARED, VARIANTS, Options, Scale, follow, runs_of
from reproduction.page import Shown
from reproduction.rows import MissingRowError, Row, Settings

NAME = "figure 3"
TITLE = "Figure 3: ImageNet, and what stands in for it"
KEYS = ("method", "data")
ABOUT = (
    "Multinomial logistic regression with steps of 2/(t+2), as in figure 2. ImageNet's features "
    "are used where --imagenet names a folder of them, with the paper's μ = 30 (and a minute for "
    "every method, unless the scale is the paper's). There are two stand-ins: real sentence "
    "embeddings of 150 intents (CLINC150: the part that the examples have, or the file that "
    "--clinc150 names; its rows are shuffled), and a synthetic set with ImageNet's proportion of "
    "features to classes; at the paper's scale, with its very shape, and with five minutes for "
    "every method. Neither is ImageNet."
)
CLAIMS: list[Claim] = []

REAL = "ImageNet (ResNet50 features)"
INTENTS = "stand-in: CLINC150 sentence embeddings"
SYNTHETIC = "stand-in: synthetic"
#: Rows of unit length have small scores: it takes a larger μ to separate 150 classes.
_RADII = {INTENTS: 500.0, SYNTHETIC: 30.0, REAL: 30.0}

#: Rows, features, classes, and rows of the test.
_SYNTHETIC: dict[Scale, tuple[int, int, int, int]] = {
    "toy": (300, 16, 8, 60),
    "small": (20_000, 256, 125, 4000),
    "paper": (1_281_167, 2048, 1000, 50_000),
}
_EPOCHS: dict[Scale, int] = {"toy": 6, "small": 120, "paper": 110}
# For each method: an epoch of Naive at ImageNet's shape takes most of a minute on two cores.
_SECONDS: dict[tuple[str, Scale], float] = {(SYNTHETIC, "paper"): 300.0, (REAL, "small"): 60.0}
# Errors are compared at the worst of them, and 1 % more.
_MARGIN = 1.01
_CHEAP = (
    "Where all workers are on one machine, what Naive sends costs nothing, and the exact pair of a "
    "small matrix is cheap."
)


def runs(options: Options) -> list[Settings]:
    """Every method on all data that there are."""
    sources = {SYNTHETIC: "make_multiclass"}
    if options.intents is not None:
        sources[INTENTS] = f"{identity(options.intents)}, shuffled"
    if options.imagenet is not None:
        sources[REAL] = identity(options.imagenet)
    made: list[Settings] = []
    for name, source in sources.items():
        problem = {"data": name, "source": source, "radius": _RADII[name], "scale": options.scale}
        if (name, options.scale) in _SECONDS:
            problem["seconds"] = _SECONDS[name, options.scale]
        made += runs_of(COMPARED, **problem, shards=8, epochs=_EPOCHS[options.scale])
    return made


def measure(options: Options, run: Settings) -> dict[str, Any]:
    """Solve by one method."""
    if run["data"] == SYNTHETIC:
        split = cached(multiclass, *_SYNTHETIC[options.scale])
    elif run["data"] == INTENTS:
        split = cached(read_intents, options.intents, 200 if options.scale == "toy" else None)
    else:
        split = cached(read_imagenet, options.imagenet)
    values = follow(classification(split, run["radius"]), run, step="harmonic", every=10)
    n, d = split.X.shape
    return {**values, "n": n, "d": d, "m": split.n_classes}


def group(rows: Sequence[Row]) -> Problems:
    """Rows by data and method."""
    return comparison.by_problem(rows, "data", lambda settings: _title(settings["data"]))


def _title(name: str) -> str:
    return f"{name}, μ = {_RADII[name]:g}"


def show(problems: Problems) -> Shown:
    """Objective and top-5 error against epochs and time."""
    notes = []
    for title, methods in problems.items():
        some = next(iter(methods.values()))
        values, limit = some["values"], some["settings"].get("seconds")
        notes.append(f"{title}: n = {values['n']:,}, d = {values['d']}, m = {values['m']}.")
        cut = [name for name, row in methods.items() if row["values"]["status"] == "stopped"]
        if cut:
            notes.append(f"Ended by the limit of {limit:g} seconds: {', '.join(cut)}.")
    errors = {"top-1": "top-1 error", "top-5": "top-5 error"}
    return comparison.show(problems, errors, "top-5", notes)


def _only(title: str, problems: Problems) -> Problems:
    if title not in problems:
        raise MissingRowError("The data are not here: see --imagenet and --clinc150.")
    return {title: problems[title]}


def _is_faster(title: str, problems: Problems) -> Judged:
    return comparison.dfw_is_faster(_only(title, problems))


def _errors_fall_sooner(title: str, problems: Problems) -> Judged:
    """Errors are computed in some epochs only: times are those of the first that shows it."""
    methods = _only(title, problems)[title]
    errors = {name: error(methods[name], "top-5") for name in COMPARED}
    target = _MARGIN * max(errors[name] for name in ("Naive", *VARIANTS))
    times = {name: time_to_error(methods[name], "top-5", target) for name in COMPARED}
    words = f"Seconds to {target:.3g}: {listed(times)}. At the end: {listed(errors)}."
    slowest = max(times[name] for name in VARIANTS)
    return words, slowest < min(times["Naive"], times["SVA"])


for _name in (REAL, INTENTS, SYNTHETIC):
    _kind: Kind = "paper" if _name == REAL else "stand-in"
    CLAIMS += [
        Claim(
            f"DFW variants are faster than the baselines ({_title(_name)}).",
            partial(_is_faster, _title(_name)),
            "The target is nearly what the worst of them ends with, which a variant with coarser "
            f"pairs may reach late. {_CHEAP}",
            _kind,
        ),
        Claim(
            f"DFW variants have the same top-5 error sooner ({_title(_name)}).",
            partial(_errors_fall_sooner, _title(_name)),
            f"The target is the worst of their errors at the end. {_CHEAP}",
            _kind,
        ),
    ]
claim(CLAIMS, comparison.ACCELERATED_REASON, "beyond")(comparison.accelerated_goes_further)
