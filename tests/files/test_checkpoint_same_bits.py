"""A run that was stopped and goes on ends with the bits of one that was never stopped."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from tests.files.checkpointed import StopAfter, StopError, assert_same_run, every_epoch, stopped

import dfwtrace as dt
from dfwtrace.linalg import certificate
from dfwtrace.lmo import Adaptive, Constant, Lanczos, Power, TheoremLinear, TheoremLog

EPOCHS = 6
LS, MULTI = "least squares", "multinomial"
TASKS: dict[str, Any] = {LS: dt.LeastSquares(), MULTI: dt.Multinomial()}
RADII = {LS: 0.5, MULTI: 3.0}  # so that "accelerated" takes some epochs
FORMS = [(name, form) for name, task in TASKS.items() for form in task.representations]
ORACLES: dict[str, Any] = {
    "power-log": "power-log",
    "power-linear": "power-linear",
    "lanczos": "lanczos",
    "naive": "naive",
    "sva": "sva",
    "previous": Power(Constant(2), start="previous"),
    "started by sva": Power(Constant(2), start="sva"),
    "adaptive": Power(Adaptive()),
    "adaptive Lanczos from the previous": Lanczos(Adaptive(), start="previous"),
    "theorem, log": Power(TheoremLog()),
    "theorem, linear": Lanczos(TheoremLinear()),
}


@pytest.fixture
def data(multitask: tuple[Any, Any], multiclass: tuple[Any, Any]) -> dict[str, tuple[Any, Any]]:
    return {LS: multitask, MULTI: multiclass}


def options_of(form: str, n_shards: int = 3, n_jobs: int = 1, **others: Any) -> dict[str, Any]:
    engine = dt.LocalEngine(n_shards, n_jobs)
    settings = {"radius": 3.0, "solver": "dfw", "representation": form, "engine": engine}
    return {**settings, "max_iter": EPOCHS, **others}


def check_every_stop(
    task: Any,
    X: Any,
    y: Any,
    folder: Path,
    stops: Any = range(1, EPOCHS + 1),
    every: int = 1,
    expected: dt.Result | None = None,
    **options: Any,
) -> dt.Result:
    """A run that is stopped after each of these epochs, going on from the one before each time.

    What comes of it must be the run that nobody stopped, which is returned.
    """
    if expected is None:
        expected = dt.solve(task, X, y, **options)
    path, seen = folder / f"{every}.ckpt", []
    options["checkpoint"] = dt.Checkpoint(path, epochs=every)
    for epoch in stops:
        stopped(task, X, y, epoch, **options)
        assert path.exists() == (epoch > every)
    result = dt.solve(task, X, y, callback=lambda W, record: seen.append(record), **options)
    assert seen[0]["epoch"] == (max(stops) - 1) // every * every + 1  # the first not in the file
    assert_same_run(result, expected)
    return expected


@pytest.mark.parametrize(
    ("oracle", "name", "step"),
    [
        (oracle, *task_and_step)
        for oracle, task_and_step in zip(
            ORACLES, cycle([(LS, "linesearch"), (MULTI, "harmonic")]), strict=False
        )
    ],
)
def test_every_oracle_and_both_steps(
    oracle: str, name: str, step: str, data: Any, tmp_path: Path
) -> None:
    options = options_of("implicit", lmo=ORACLES[oracle], step=step, certify_every=4)
    check_every_stop(TASKS[name], *data[name], tmp_path, stops=[2, 5], **options)


@pytest.mark.parametrize("solver", ["dfw", "accelerated"])
@pytest.mark.parametrize(("name", "form"), FORMS)
def test_every_representation_with_and_without_intercept_and_weights(
    name: str, form: str, solver: str, data: Any, tmp_path: Path
) -> None:
    """With both or with neither, such that each task and each solver has either."""
    X, y = data[name]
    weighted = (name == LS) == (solver == "dfw")
    weights = np.random.default_rng(3).uniform(0.0, 2.0, len(X)) if weighted else None
    options = options_of(
        form, solver=solver, fit_intercept=weighted, sample_weight=weights, tol=1e-9
    )
    options["radius"] = RADII[name]
    check_every_stop(TASKS[name], X, y, tmp_path, stops=[2, EPOCHS], **options)


@pytest.mark.parametrize("solver", ["dfw", "accelerated"])
@pytest.mark.parametrize("name", TASKS)
def test_a_stop_after_every_epoch(name: str, solver: str, data: Any, tmp_path: Path) -> None:
    options = options_of("implicit", solver=solver, tol=1e-9)
    options["radius"] = RADII[name]
    expected = check_every_stop(TASKS[name], *data[name], tmp_path, **options)
    watched = dt.solve(
        TASKS[name], *data[name], checkpoint=every_epoch(tmp_path / "run"), **options
    )
    assert_same_run(watched, expected)  # to be written changes nothing


@pytest.mark.parametrize("n_shards", [1, 5])
@pytest.mark.parametrize("solver", ["dfw", "accelerated"])
def test_other_threads_go_on_with_the_same_shards(
    solver: str, n_shards: int, tmp_path: Path
) -> None:
    X, y, _ = dt.datasets.make_multiclass(n=1500, d=60, m=6, rank=3, random_state=2)
    assert X.nbytes > 1 << 19  # less is not worth a second thread
    one, two = (options_of("implicit", n_shards, jobs, solver=solver) for jobs in (1, 2))
    expected = dt.solve(dt.Multinomial(), X, y, **one)
    checkpoint = every_epoch(tmp_path / "run.ckpt")
    for epoch, options in ((2, two), (3, two), (4, one)):
        stopped(dt.Multinomial(), X, y, epoch, checkpoint=checkpoint, **options)
    result = dt.solve(dt.Multinomial(), X, y, checkpoint=checkpoint, **two)
    assert_same_run(result, expected)


@pytest.mark.parametrize("kind", ["float32", "sparse", "column by column", "more shards than rows"])
@pytest.mark.parametrize("solver", ["dfw", "accelerated"])
def test_every_kind_of_rows(kind: str, solver: str, data: Any, tmp_path: Path) -> None:
    X, y = data[MULTI]
    rows = {
        "float32": X.astype(np.float32),
        "sparse": sp.csr_array(np.where(np.abs(X) > 0.5, X, 0.0)),
        "column by column": np.asfortranarray(X),
        "more shards than rows": X,
    }[kind]
    n_shards = 70 if kind == "more shards than rows" else 3
    options = options_of("implicit", n_shards, solver=solver)
    check_every_stop(dt.Multinomial(), rows, y, tmp_path, stops=[3, 5], **options)


@pytest.mark.parametrize("form", ["gram", "implicit"])
def test_states_are_rebuilt_on_the_way(form: str, data: Any, tmp_path: Path) -> None:
    """After epoch 100: before it, after it, and right there."""
    options = options_of(form, max_iter=104, lmo="power-2", fit_intercept=form == "implicit")
    expected = check_every_stop(
        dt.LeastSquares(), *data[LS], tmp_path, stops=[50, 100, 101], every=33, **options
    )
    methods = [record["method"] for record in expected.rounds]
    assert methods.count("stats") >= 2  # W = 0, and after epoch 100
    check_every_stop(
        dt.LeastSquares(), *data[LS], tmp_path, [102], every=50, expected=expected, **options
    )


def test_ratios_of_more_epochs_than_are_looked_back_at(data: Any, tmp_path: Path) -> None:
    """The largest of the last ten ratios counts; an old one must not stay because of a stop."""
    options = options_of("gram", max_iter=40, lmo=Power(TheoremLog()))
    expected = check_every_stop(
        dt.LeastSquares(), *data[LS], tmp_path, stops=[9, 15], every=7, **options
    )
    assert len(set(expected.history.column("power_iterations"))) > 2


@pytest.mark.parametrize("name", TASKS)
def test_a_tolerance_that_is_reached(name: str, data: Any, tmp_path: Path) -> None:
    options = options_of("implicit", solver="accelerated", tol=1e-7, max_iter=500)
    options["radius"] = RADII[name]
    expected = dt.solve(TASKS[name], *data[name], **options)
    assert expected.status == "optimal"
    last = len(expected.history)
    stops = sorted({2, last // 2, last})
    check_every_stop(TASKS[name], *data[name], tmp_path, stops, expected=expected, **options)


def test_a_tolerance_reached_by_frank_wolfe_after_certificates_in_vain(
    data: Any, tmp_path: Path
) -> None:
    options = options_of("gram", tol=0.02, max_iter=500, lmo="power-1", certify_every=7)
    expected = dt.solve(dt.LeastSquares(), *data[LS], **options)
    last = len(expected.history)
    assert (expected.status, last > 10) == ("optimal", True)
    stops = [8, last // 2, last]
    check_every_stop(dt.LeastSquares(), *data[LS], tmp_path, stops, expected=expected, **options)


def test_a_run_that_stalls(data: Any, tmp_path: Path) -> None:
    options = options_of("implicit", solver="accelerated", tol=0.0, max_iter=2000)
    expected = dt.solve(dt.LeastSquares(), *data[LS], **options)
    assert expected.status == "stalled"
    last = len(expected.history)
    stops = [last // 4, last // 2, last]
    check_every_stop(dt.LeastSquares(), *data[LS], tmp_path, stops, 5, expected, **options)


def test_a_wide_matrix_whose_certificate_comes_from_lanczos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few directions in W, "accelerated" bounds σ₁ by products: each such bound counts."""
    monkeypatch.setattr(certificate, "SMALL_ENTRIES", 0)
    X, Y, _ = dt.datasets.make_multitask(n=300, d=100, m=90, rank=2, noise=0.1, random_state=4)
    options = options_of("implicit", solver="accelerated", tol=1e-8, max_iter=200, certify_every=3)
    options["radius"] = 0.9
    expected = dt.solve(dt.LeastSquares(), X, Y, **options)
    assert expected.certificate is not None
    assert expected.certificate.method == "lanczos"
    stop = len(expected.history) // 2
    check_every_stop(dt.LeastSquares(), X, Y, tmp_path, [stop], 2, expected, **options)


def test_many_quasi_newton_steps_with_certificates_in_between(tmp_path: Path) -> None:
    X, y, _ = dt.datasets.make_multiclass(n=150, d=30, m=12, rank=2, random_state=4)
    options = options_of("implicit", solver="accelerated", tol=1e-9, max_iter=64, certify_every=3)
    options["radius"] = 20.0
    expected = dt.solve(dt.Multinomial(), X, y, **options)
    last = len(expected.history)
    assert last > 40  # more than the pairs of changes that are kept
    stops = [3, last // 2, last - 3]
    check_every_stop(dt.Multinomial(), X, y, tmp_path, stops, 2, expected, **options)


def test_a_start_that_is_not_zero(data: Any, tmp_path: Path) -> None:
    X, y = data[MULTI]
    start = dt.solve(dt.Multinomial(), X, y, radius=2.0, solver="dfw", max_iter=3).W
    for solver in ("dfw", "accelerated"):
        folder = tmp_path / solver
        folder.mkdir()
        options = options_of("implicit", solver=solver, start=start)
        check_every_stop(dt.Multinomial(), X, y, folder, stops=[2, 4], **options)


def test_what_the_callback_told_is_kept(data: Any, tmp_path: Path) -> None:
    X, y = data[MULTI]

    def tell(W: dt.LowRankMatrix, record: dict[str, Any]) -> dict[str, Any]:
        wrong = (X @ W).argmax(axis=1) != y
        return {"error": wrong.mean(), "single": np.float32(0.1 * record["epoch"]), "word": "ü"}

    class TellAndStop(StopAfter):
        def __call__(self, W: dt.LowRankMatrix, record: dict[str, Any]) -> Any:
            super().__call__(W, record)
            return tell(W, record)

    options = options_of("implicit", checkpoint=every_epoch(tmp_path / "run.ckpt"))
    expected = dt.solve(dt.Multinomial(), X, y, callback=tell, **options_of("implicit"))
    with pytest.raises(StopError):
        dt.solve(dt.Multinomial(), X, y, callback=TellAndStop(4), **options)
    result = dt.solve(dt.Multinomial(), X, y, callback=tell, **options)
    assert_same_run(result, expected)
    assert result.history.column("single").dtype == np.float32


# More epochs, and a run that has ended


@pytest.mark.parametrize("solver", ["dfw", "accelerated"])
@pytest.mark.parametrize(("first", "then"), [(1, 2), (5, 9)])
def test_more_epochs_go_on_from_the_file(
    solver: str, first: int, then: int, data: Any, tmp_path: Path
) -> None:
    X, y = data[LS]
    options = options_of("gram", solver=solver, tol=0.0)
    options["checkpoint"] = every_epoch(tmp_path / "run.ckpt")
    some = dt.solve(dt.LeastSquares(), X, y, **{**options, "max_iter": first})
    seen: list[int] = []
    more = dt.solve(
        dt.LeastSquares(),
        X,
        y,
        callback=lambda W, record: seen.append(record["epoch"]),
        **{**options, "max_iter": then},
    )
    assert seen == list(range(len(some.history) + 1, len(more.history) + 1))
    whole = dt.solve(dt.LeastSquares(), X, y, **{**options, "max_iter": then, "checkpoint": None})
    assert_same_run(more, whole)


@pytest.mark.parametrize("every", [1, 4])
@pytest.mark.parametrize("solver", ["dfw", "accelerated"])
def test_a_run_that_has_ended_ends_again_the_same(
    every: int, solver: str, data: Any, tmp_path: Path
) -> None:
    X, y = data[MULTI]
    path = tmp_path / "run.ckpt"
    options = options_of("implicit", solver=solver, checkpoint=dt.Checkpoint(path, epochs=every))
    first = dt.solve(dt.Multinomial(), X, y, **options)
    content = path.read_bytes()
    for _ in range(2):
        assert_same_run(dt.solve(dt.Multinomial(), X, y, **options), first)
    assert path.read_bytes() == content


def test_a_path_is_written_to_by_the_clock(data: Any, tmp_path: Path) -> None:
    """A plain path stands for every 30 seconds, and a short run ends before."""
    X, y = data[LS]
    options = options_of("gram")
    expected = dt.solve(dt.LeastSquares(), X, y, **options)
    for path in (str(tmp_path / "run.ckpt"), tmp_path / "run.ckpt"):
        assert_same_run(dt.solve(dt.LeastSquares(), X, y, checkpoint=path, **options), expected)
    assert list(tmp_path.iterdir()) == []
    checkpoint = dt.Checkpoint(tmp_path / "run.ckpt", seconds=1e-9)
    assert_same_run(dt.solve(dt.LeastSquares(), X, y, checkpoint=checkpoint, **options), expected)
    assert [path.name for path in tmp_path.iterdir()] == ["run.ckpt"]
