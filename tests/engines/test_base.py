"""What is sent: counted as if every shard were a worker, and equal to the paper's table."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import dfwtrace as dt
from dfwtrace.engines import Cost, LocalWorkers, Round

N, D = 5, 7
WIDTHS = {"least squares": 5, "multinomial": 4}
TASKS = {"least squares": dt.LeastSquares(), "multinomial": dt.Multinomial()}
FORMS = [(task, form) for task in TASKS for form in TASKS[task].representations]


@pytest.fixture
def data(multitask: tuple[Any, Any], multiclass: tuple[Any, Any]) -> dict[str, tuple[Any, Any]]:
    return {"least squares": multitask, "multinomial": multiclass}


def history(task: str, data: tuple[Any, Any], lmo: Any, form: str, **options: Any) -> dt.History:
    return dt.solve(
        TASKS[task],
        *data,
        radius=3.0,
        lmo=lmo,
        representation=form,
        engine=dt.LocalEngine(n_shards=N, n_jobs=1),
        **{"solver": "dfw", "max_iter": 4, **options},
    ).history


@pytest.mark.parametrize(("task", "form"), FORMS)
@pytest.mark.parametrize("step", ["harmonic", "linesearch"])
def test_naive_sends_the_gradient_in_one_round(
    task: str, form: str, step: str, data: dict[str, Any]
) -> None:
    records = history(task, data[task], "naive", form, step=step)
    assert [r["rounds"] for r in records] == [1] * 4
    assert [r["numbers_sent"] for r in records] == [N * D * WIDTHS[task]] * 4


@pytest.mark.parametrize(("task", "form"), FORMS)
@pytest.mark.parametrize("step", ["harmonic", "linesearch"])
def test_sva_sends_a_pair_in_one_round(
    task: str, form: str, step: str, data: dict[str, Any]
) -> None:
    records = history(task, data[task], "sva", form, step=step)
    assert [r["rounds"] for r in records] == [1] * 4
    assert [r["numbers_sent"] for r in records] == [N * (D + WIDTHS[task])] * 4


@pytest.mark.parametrize(("task", "form"), FORMS)
@pytest.mark.parametrize("kind", [dt.lmo.Power, dt.lmo.Lanczos])
@pytest.mark.parametrize(
    ("schedule", "start", "iterations"),
    [
        (dt.lmo.Constant(1), "random", [1, 1, 1, 1]),
        (dt.lmo.Constant(3), "previous", [3, 3, 3, 3]),
        (dt.lmo.Linear(0.5), "random", [1, 1, 2, 2]),
    ],
)
def test_iterations_send_two_vectors_a_shard_in_two_rounds(
    task: str,
    form: str,
    kind: Any,
    schedule: Any,
    start: str,
    iterations: list[int],
    data: dict[str, Any],
) -> None:
    records = history(task, data[task], kind(schedule, start), form)
    assert [r["power_iterations"] for r in records] == iterations
    assert [r["rounds"] for r in records] == [2 * k for k in iterations]
    sent = [2 * N * k * (D + WIDTHS[task]) for k in iterations]
    assert [r["numbers_sent"] for r in records] == sent


@pytest.mark.parametrize(("task", "form"), FORMS)
def test_a_start_from_sva_costs_one_round_more(task: str, form: str, data: dict[str, Any]) -> None:
    lmo = dt.lmo.Power(dt.lmo.Constant(2), start="sva")
    records = history(task, data[task], lmo, form)
    assert [r["rounds"] for r in records] == [5] * 4
    assert [r["numbers_sent"] for r in records] == [5 * N * (D + WIDTHS[task])] * 4


@pytest.mark.parametrize("layout", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("n_shards", [1, 2, 100])
def test_every_logical_shard_counts_also_an_empty_one(
    layout: Any, n_shards: int, multitask: tuple[Any, Any]
) -> None:
    X, Y = multitask
    engine = dt.LocalEngine(n_shards=n_shards, n_jobs=1)
    for form in TASKS["least squares"].representations:
        records = dt.solve(
            dt.LeastSquares(),
            layout(X),
            Y,
            radius=1.0,
            solver="dfw",
            lmo="power-2",
            max_iter=2,
            representation=form,
            engine=engine,
        ).history
        assert [r["numbers_sent"] for r in records] == [4 * n_shards * (D + 5)] * 2


@pytest.mark.parametrize(("task", "form"), FORMS)
def test_all_other_rounds_are_counted_apart(task: str, form: str, data: dict[str, Any]) -> None:
    """A harmonic epoch also sends the atom with the update, and gets F and ⟨W, ∇F⟩ back."""
    d_and_m = D + WIDTHS[task]
    records = history(task, data[task], "power-1", form, step="harmonic")[1:]
    assert [r["other_rounds"] for r in records] == [2] * 3
    assert [r["other_numbers"] for r in records] == [N * d_and_m + N * 2] * 3


def test_a_certificate_is_not_the_oracles(data: dict[str, Any]) -> None:
    plain, certified = (
        history("least squares", data["least squares"], "power-1", "implicit", certify_every=every)
        for every in (None, 1)
    )
    for name in ("rounds", "numbers_sent"):
        np.testing.assert_array_equal(certified.column(name), plain.column(name))
    extra = certified.column("other_numbers") - plain.column("other_numbers")
    np.testing.assert_array_equal(extra, [N * D * 5] * 4)  # the dense gradient


class Echo:
    """Answers with ones, and remembers its argument."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def keep(self, state: Any, *args: Any) -> Any:
        self.seen.append(args[0])
        return state

    def answer(self, state: Any, *args: Any) -> Any:
        self.seen.append(args[0])
        return np.ones(3)

    def fail(self, state: Any) -> Any:
        raise LookupError("no")


def workers_of(states: int = 2) -> LocalWorkers:
    return LocalWorkers(Echo(), list(range(states)), shard_rows=[10, 20][:states])


def test_arrays_are_counted_and_control_words_are_not() -> None:
    with closing(workers_of()) as workers:
        assert workers.n_shards == 2
        workers.build("keep", np.ones(4))
        workers.apply("keep", np.ones((2, 2)), 7.0)
        workers.count_for_oracle(True)
        np.testing.assert_array_equal(workers.sum("answer", np.ones(5), 1), [2.0] * 3)
        assert len(workers.gather("answer", 1)) == 2
        assert workers.take()[:4] == (2, 2 * (5 + 3) + 2 * 3, 2, 2 * 4 + 2 * 4)
        workers.sum("answer", 1)  # the oracle's rounds end with the epoch
        assert workers.take()[:4] == (0, 0, 1, 2 * 3)
        assert workers.take()[:4] == (0, 0, 0, 0)


def test_every_round_is_kept_with_its_cost() -> None:
    with closing(workers_of()) as workers:
        workers.build("keep", np.ones(4))
        workers.take()
        workers.count_for_oracle(True)
        workers.sum("answer", np.ones(5))
        workers.count_for_oracle(False)
        workers.apply("keep", 7.0)
        taken = workers.take()[-1]
        workers.gather("answer", np.ones(1))
        assert all(isinstance(made, Round) for made in workers.rounds)
        assert [made[:4] for made in workers.rounds] == [
            (0, False, "keep", 8),
            (1, True, "answer", 16),
            (1, False, "keep", 0),
            (2, False, "answer", 8),
        ]
        costs = [made.cost for made in workers.rounds]
        assert all(cost.compute > 0.0 for cost in costs)
        assert costs[1].reduce > 0.0
        assert taken == Cost.total(costs[1:3])
        assert workers.take()[-1] == costs[3]
        assert workers.take()[-1] == Cost()


@pytest.mark.parametrize("method", ["build", "apply", "sum", "gather"])
def test_arguments_reach_every_engine_in_a_layout_that_a_wire_can_carry(method: str) -> None:
    program = Echo()
    with closing(LocalWorkers(program, [0], shard_rows=[1])) as workers:
        run, name = getattr(workers, method), "answer" if method in ("sum", "gather") else "keep"
        A = np.arange(24.0).reshape(4, 6)
        for argument in (A, np.asfortranarray(A), A[:, 0].copy()):
            run(name, argument)
            assert program.seen[-1] is argument
        for argument in (A[:, ::2], A[::2, 1:], A.T[::2], A[:, 1], A[::-1]):
            run(name, argument)
            assert program.seen[-1].flags.forc
            np.testing.assert_array_equal(program.seen[-1], argument)
        run(name, 3.0)
        assert program.seen[-1] == 3.0


def test_a_round_that_failed_is_not_counted() -> None:
    with closing(workers_of()) as workers:
        for run in (workers.build, workers.apply, workers.sum, workers.gather):
            with pytest.raises(LookupError):
                run("fail")
        assert workers.rounds == []
        assert workers.take()[2] == 0


class Steps:
    """A program whose states depend on every call."""

    def start(self, shard: float, W: Any) -> Any:
        return shard * W

    def move(self, state: Any, u: Any, gamma: float) -> Any:
        return (1.0 - gamma) * state + gamma * u

    def show(self, state: Any) -> Any:
        return state


def test_other_workers_can_be_brought_to_the_same_state_and_account() -> None:
    """From the last build on, with arguments as they were when they were sent."""
    first, second = (LocalWorkers(Steps(), [1.0, 2.0], shard_rows=[3, 4]) for _ in range(2))
    with closing(first), closing(second):
        W, u = np.asfortranarray(np.ones((3, 2))), np.full((3, 2), 5.0)
        first.build("start", u)
        first.build("start", W)
        first.apply("move", u, 0.25)
        W[:] = u[:] = np.nan
        first.take()
        memory = first.memory()
        assert [method for method, _ in memory["changes"]] == ["start", "move"]
        second.restore(memory)
        np.testing.assert_array_equal(second.sum("show"), first.sum("show"))
        assert [made[:4] for made in second.rounds] == [made[:4] for made in first.rounds]
        assert second.rounds[:3] == first.rounds[:3]
        assert second.take()[:4] == first.take()[:4]


def test_costs_add_up_part_by_part() -> None:
    assert Cost.total([Cost(3, 0.5, 1.0, 2.0), Cost(4, 0.25, 8.0, 16.0)]) == (7, 0.75, 9.0, 18.0)
    assert Cost.total(iter([Cost(3, 0.5)])) == Cost(3, 0.5)
    assert Cost.total([]) == Cost()


def test_workers_may_continue_the_account_of_others() -> None:
    class Counted(LocalWorkers):
        closed = 0

        def close(self) -> None:
            self.closed += 1
            super().close()

    before = Counted(Echo(), [0, 1], shard_rows=[10, 20])
    before.sum("answer", np.ones(5))
    before.take()
    after = Counted(Echo(), [0], shard_rows=[10, 20]).continue_from(before)
    assert (before.closed, after.closed) == (1, 0)
    np.testing.assert_array_equal(after.sum("answer", np.ones(5)), np.ones(3))  # of one state
    assert [made[:4] for made in after.rounds] == [
        (0, False, "answer", 16),
        (1, False, "answer", 16),  # for as many shards as ever
    ]
    assert after.take()[2:4] == (1, 16)
    after.close()
    assert (before.closed, after.closed) == (1, 1)


def test_summing_the_moments_is_a_round_of_the_setup(multitask: tuple[Any, Any]) -> None:
    X, Y = multitask
    engine = dt.LocalEngine(n_shards=N, n_jobs=1)
    result = dt.solve(
        dt.LeastSquares(),
        X,
        Y,
        radius=1.0,
        solver="dfw",
        max_iter=2,
        representation="gram",
        engine=engine,
    )
    first = result.rounds[0]
    assert (first["epoch"], first["oracle"], first["method"]) == (0, False, "moments")
    assert first["numbers_sent"] >= N * (D * (D + 1) // 2 + D * 5)
    assert first["compute_seconds"] > 0.0
    assert "moments" not in [made["method"] for made in result.rounds[1:]]


def test_the_account_can_be_reset_for_another_run() -> None:
    with closing(workers_of()) as workers:
        workers.count_for_oracle(True)
        workers.sum("answer", np.ones(5))
        rounds = workers.rounds
        workers.reset_accounting()
        assert workers.rounds == []
        workers.sum("answer", np.ones(5))
        assert [made[:2] for made in workers.rounds] == [(0, False)]
        assert len(rounds) == 1  # those of the run before are still there


@pytest.mark.parametrize(("task", "form"), FORMS)
def test_an_accelerated_epoch_sends_factors_and_products_only(
    task: str, form: str, data: dict[str, Any]
) -> None:
    """N(d+m)(2r) numbers and 3 + 2m in the two rounds of an evaluation; all are told.

    Here r counts the probes beside W's factors.
    """
    result = dt.solve(
        TASKS[task],
        *data[task],
        radius=3.0,
        solver="accelerated",
        tol=1e-6,
        representation=form,
        engine=dt.LocalEngine(n_shards=N, n_jobs=1),
    )
    size = D + WIDTHS[task]
    rounds = result.rounds
    evaluations = [k for k, made in enumerate(rounds) if made["method"] == "tangent"]
    first, *others = evaluations
    assert others
    # At W = 0 the shards are there already, and W has no factors.
    assert rounds[first]["numbers_sent"] == N * (3 + 2 * WIDTHS[task])
    for k in others:
        sent, back = rounds[k - 1]["numbers_sent"], rounds[k]["numbers_sent"]
        assert rounds[k - 1]["method"] == "stats"
        rank, rest = divmod(back - N * (3 + 2 * WIDTHS[task]), N * size)
        assert rest == 0
        assert 1 <= rank <= 2 * WIDTHS[task]
        assert sent == N * rank * (size + 1)
    assert not any(made["oracle"] for made in rounds)
    told = sum(record["other_numbers"] for record in result.history)
    last = len(result.history)
    in_epochs = sum(made["numbers_sent"] for made in rounds if 0 < made["epoch"] <= last)
    assert told <= in_epochs <= told + N * D * WIDTHS[task]  # and the last certificate, perhaps
