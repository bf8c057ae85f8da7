"""What is said about a claim, on rows whose verdict is known."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from reproduction.claims import Claim, counts
from reproduction.methods import COMPARED, SHOWN
from reproduction.rows import Row

from reproduction import (
    figure1,
    figure2,
    figure3,
    figure4,
    spectrum,
    starts,
    table1,
    table2,
    theorem,
)

GOOD = {
    "Naive": 0.10,
    "SVA": 0.30,
    "SVA (agreement)": 0.11,
    "DFW-1": 0.14,
    "DFW-2": 0.11,
    "DFW-log": 0.112,
    "accelerated": 0.01,
}
#: Seconds of an epoch.
FAST = {
    "Naive": 1.0,
    "SVA": 2.0,
    "SVA (agreement)": 2.0,
    "DFW-1": 0.1,
    "DFW-2": 0.2,
    "DFW-log": 0.1,
    "accelerated": 0.2,
}


def row(method: str, objective: float, second: float, **settings: Any) -> Row:
    """Two epochs, the second of which ends at this objective."""
    errors = {"epoch": [2], "error": [objective]}
    values = {
        "epoch": [1, 2],
        "objective": [0.9, objective],
        "seconds": [second, 2.0 * second],
        "power_iterations": [1, 2] if method == "DFW-log" else [2, 2],
        "errors": {"frobenius": errors, "top-1": errors, "top-5": errors},
        "relative_gap": 1e-6,
        "setup_seconds": 0.5,
    }
    return {"settings": {"method": method, **settings}, "values": values}


def judge(experiment: ModuleType, rows: list[Row]) -> list[Claim]:
    return [claim.judged(experiment.group(rows)) for claim in experiment.CLAIMS]


def find(claims: list[Claim], words: str) -> Claim:
    (claim,) = (claim for claim in claims if words in claim.text)
    return claim


def first(small: dict[str, float], large: dict[str, float], times: dict[str, float]) -> list[Claim]:
    """Figure 1 with ends that differ from the good ones at either dimension."""
    rows = [
        row(name, ends[name], {**FAST, **times}[name], d=d, n=4000, shards=8)
        for d, ends in ((300, {**GOOD, "SVA": 0.2, **small}), (1000, {**GOOD, **large}))
        for name in COMPARED
    ]
    rows += [
        row(name, 0.2, 1.0, d=d, n=4000, shards=40)
        for name in ("SVA (many workers)", "SVA (agreement, many workers)")
        for d in (300, 1000)
    ]
    return judge(figure1, rows)


def second(ends: dict[str, float], times: dict[str, float]) -> list[Claim]:
    """Figure 2, the same at every radius."""
    return judge(
        figure2,
        [
            row(name, {**GOOD, **ends}.get(name, 0.11), {**FAST, **times}.get(name, 0.9), radius=mu)
            for mu in figure2.RADII
            for name in (*COMPARED, "DFW-2 (dense)")
        ],
    )


@pytest.mark.parametrize(
    ("words", "small", "large", "times"),
    [
        ("best per epoch", {}, {"SVA": 0.05}, {}),
        ("SVA degrades", {"SVA": 0.9}, {}, {}),
        ("nearly match", {}, {"DFW-2": 0.5}, {}),
        ("fewer iterations", {}, {"DFW-log": 0.5}, {}),
        ("baselines in time", {}, {}, {"DFW-2": 5.0}),
        ("baselines in time", {}, {}, {"SVA": 0.01, "Naive": 0.01}),
        ("accelerated solver", {}, {"accelerated": 0.5}, {}),
    ],
)
def test_the_first_figures_claims_fail_one_by_one(
    words: str, small: dict[str, float], large: dict[str, float], times: dict[str, float]
) -> None:
    assert all(claim.holds for claim in first({}, {}, {}))
    assert find(first(small, large, times), words).holds is False


def test_sva_is_judged_by_the_papers_signs_beside_those_that_agree() -> None:
    better = first({}, {"SVA (agreement)": 0.1}, {})
    worse = first({}, {"SVA (agreement)": 0.9}, {})
    assert find(better, "SVA degrades").holds is find(worse, "SVA degrades").holds is True
    assert find(worse, "SVA degrades").measured == (
        "Error of W over Naive's at the end. SVA: d = m = 300 2.000, d = m = 1000 3.000; "
        "SVA (agreement): d = m = 300 1.100, d = m = 1000 9.000; "
        "SVA (many workers): d = m = 300 2.000, d = m = 1000 2.000; "
        "SVA (agreement, many workers): d = m = 300 2.000, d = m = 1000 2.000. "
        "Many are 40 workers."
    )


@pytest.mark.parametrize(
    ("words", "ends", "times"),
    [
        ("best per epoch", {"SVA": 0.05}, {}),
        ("SVA falls behind", {"DFW-1": 0.4}, {}),
        ("nearly match", {"DFW-2": 0.2}, {}),
        ("baselines in time", {}, {"DFW-1": 3.0}),
        ("dense form", {}, {"DFW-2 (dense)": 1.1}),
        ("accelerated solver", {}, {"accelerated": 3.0}),
        ("accelerated solver", {"accelerated": 0.2}, {}),
    ],
)
def test_the_second_figures_claims_fail_one_by_one(
    words: str, ends: dict[str, float], times: dict[str, float]
) -> None:
    assert find(second({}, {}), words).holds is True
    assert find(second(ends, times), words).holds is False


def test_dfw_1_at_the_small_radius_is_judged_by_its_error() -> None:
    """Which the rows here have the same as the objective."""
    assert find(second({}, {}), "DFW-1 is best in error").holds is False
    assert find(second({"DFW-1": 0.01}, {}), "DFW-1 is best in error").holds is True


def test_epochs_are_counted_as_well_as_ends() -> None:
    naive, sva, *_ = second({"DFW-2": 0.05, "DFW-1": 0.4}, {})
    assert "lowest: μ = 10 1 of 2" in naive.measured
    assert "highest: μ = 10 1 of 2" in sva.measured


def test_what_was_never_reached_is_said_in_words() -> None:
    claims = second({"accelerated": 0.2}, {})
    assert "accelerated never, Naive 2" in claims[-1].measured
    assert "SVA never" in find(claims, "baselines in time").measured
    assert not any("inf" in claim.measured for claim in claims)


@pytest.mark.parametrize("missing", ["SVA", "Naive", "accelerated"])
def test_a_claim_without_all_of_its_rows_is_not_measured(missing: str) -> None:
    rows = [
        row(name, GOOD[name], FAST[name], d=d, n=4000, shards=8)
        for d in (300, 1000)
        for name in COMPARED
        if name != missing
    ]
    claim = find(judge(figure1, rows), "accelerated solver")
    assert (claim.holds, claim.verdict) == (None, "not measured")
    assert claim.measured == f"There is no row for {missing}."
    assert find(judge(figure1, rows), "fewer iterations").holds is True
    one_dimension = judge(figure1, [row for row in rows if row["settings"]["d"] == 300])
    assert {claim.holds for claim in one_dimension} == {None}


@pytest.mark.parametrize(("second", "holds"), [(0.1, True), (5.0, False)])
def test_the_third_figures_claims(second: float, holds: bool) -> None:
    times = {**FAST, "DFW-1": second}
    rows = [row(name, GOOD[name], times[name], data=figure3.REAL) for name in COMPARED]
    claims = judge(figure3, rows)
    real = [claim.holds for claim in claims if figure3.REAL in claim.text]
    others = {claim.holds for claim in claims if "stand-in" in claim.text}
    assert (real, others) == ([holds, holds], {None})
    assert [claim.kind for claim in claims] == ["paper"] * 2 + ["stand-in"] * 4 + ["beyond"]


def falling(method: str, objectives: list[float], errors: list[float], second: float) -> Row:
    """Epochs of so many seconds each, with an error that is computed in every other one."""
    epochs = list(range(1, len(objectives) + 1))
    known = row(method, objectives[-1], second, data=figure3.REAL)
    column = {"epoch": epochs[1::2], "error": errors}
    values = {
        "epoch": epochs,
        "objective": objectives,
        "seconds": [second * epoch for epoch in epochs],
        "errors": {"top-1": column, "top-5": column},
    }
    return {**known, "values": {**known["values"], **values}}


@pytest.mark.parametrize(
    ("naive_errors", "naive_second", "holds"),
    [([0.3, 0.2], 1.0, [True, True]), ([0.1, 0.1], 0.15, [True, False])],
)
def test_times_are_those_of_a_little_before_the_worst_end(
    naive_errors: list[float], naive_second: float, holds: list[bool]
) -> None:
    """Naive ends with the worst objective, and is 1 % of its fall before that in epoch 3."""
    others = ("SVA (agreement)", "DFW-1", "DFW-2", "DFW-log", "accelerated")
    rows = [
        falling("Naive", [0.9, 0.8, 0.604, 0.6], naive_errors, naive_second),
        falling("SVA", [0.9, 0.8, 0.7, 0.7], [0.9, 0.9], 1.0),
        *(falling(name, [0.6, 0.55, 0.5, 0.5], [0.5, 0.4], 0.1) for name in others),
    ]
    faster, sooner, *_ = judge(figure3, rows)
    naive = f"{3 * naive_second:.3g}"
    assert f"seconds to 0.604 F(0): Naive {naive}, SVA never, DFW-1 0.1" in faster.measured
    # The worst error at the end is 0.4, and Naive has less when its error is first computed.
    naive = f"{2 * naive_second:.3g}"
    assert f"Seconds to 0.404: Naive {naive}, SVA never, DFW-1 0.4" in sooner.measured
    assert [faster.holds, sooner.holds] == holds


def cores(engine: str, seconds: list[float]) -> list[Row]:
    return [
        {
            "settings": {"engine": engine, "cores": count, "shards": len(seconds)},
            "values": {"seconds_an_epoch": second},
        }
        for count, second in enumerate(seconds, start=1)
    ]


@pytest.mark.parametrize(
    ("here", "at_96", "holds"),
    [
        ([8.0, 4.2], 1.5, [True, None, True]),
        ([8.0, 7.9], 50.0, [False, None, False]),
        ([8.0], None, [None, None, None]),
    ],
)
def test_the_fourth_figures_claims(
    here: list[float], at_96: float | None, holds: list[bool | None]
) -> None:
    rows = cores("in process", here) + cores("Spark", [8.0, 4.0])[:1]  # Spark's is not complete
    if at_96 is not None:
        values = {"cores": [1, 96, 384], "seconds_an_epoch": [96.0, at_96, 1.0]}
        rows.append({"settings": {"engine": "simulation"}, "values": values})
    assert [claim.holds for claim in judge(figure4, rows)] == holds


@pytest.mark.parametrize(
    ("numbers", "expected", "holds"),
    [(5.0, 5.0, [True, True]), (5.0, 6.0, [False, True]), (50.0, 50.0, [True, False])],
)
def test_what_is_sent(numbers: float, expected: float, holds: list[bool]) -> None:
    def sent(method: str, counted: float, by_formula: float) -> Row:
        values = {"numbers_sent": [counted], "expected_numbers": [by_formula]}
        values |= {"rounds": [1.0], "expected_rounds": [1.0]}
        return {"settings": {"method": method, "d": 9, "m": 7}, "values": values}

    names = (*SHOWN, "DFW-linear", "DFW-1 from SVA")
    rows = [sent(name, 20.0, 20.0) for name in names if name != "DFW-2"]
    rows.append(sent("DFW-2", numbers, expected))
    assert [claim.holds for claim in judge(table1, rows)] == holds
    assert {claim.holds for claim in judge(table1, rows[1:])} == {None}


@pytest.mark.parametrize("form", ["dense", "factored"])
@pytest.mark.parametrize(
    ("measured", "holds", "words"),
    [
        (1.9, True, ""),
        (2.5, False, "More than that: multinomial, {}, 2n × 2.50"),
        (1.1, True, "Clearly less than predicted: multinomial, {}, 2n × 1.10"),
    ],
)
def test_a_size_that_matters_too_much(form: str, measured: float, holds: bool, words: str) -> None:
    rows = [
        {
            "settings": {"task": task, "representation": kind},
            "values": {
                "measured": {"n": 1.9, "d": 1.0, "m": 1.5},
                "predicted": {"n": 2.0, "d": 1.0, "m": 1.6},
            },
        }
        for task, cls in table2.TASKS.items()
        for kind in cls().representations
    ]
    case = {"task": "multinomial", "representation": form}
    (changed,) = (row for row in rows if row["settings"] == case)
    changed["values"]["measured"] = {"n": measured, "d": 1.0, "m": 1.5}
    papers, beyond = judge(table2, rows)
    claim, other = (papers, beyond) if form == "dense" else (beyond, papers)
    assert (claim.holds, other.holds) == (holds, True)
    assert words.format(form) in claim.measured
    rows.remove(changed)
    assert None in {claim.holds for claim in judge(table2, rows)}


@pytest.mark.parametrize(("mean", "holds"), [(0.86, True), (0.97, False)])
def test_a_ratio_near_one_is_not_well_below_it(mean: float, holds: bool) -> None:
    values = {"mean_ratio": mean, "largest_ratio": 0.99}
    (claim,) = judge(spectrum, [{"settings": {"data": "made up"}, "values": values}])
    assert claim.holds is holds


@pytest.mark.parametrize(
    ("changed", "holds"),
    [
        ({}, [True, True, True]),
        ({"the theorem's K(t)": [3.0, 3.0, 3.0, 3.0]}, [False, True, True]),
        ({"K = 4": [1.0, 0.6, 0.6, 0.6]}, [True, False, True]),  # above K = 2
        ({"K = 1": [2.0, 1.8, 1.0, 0.8]}, [True, False, True]),  # it goes on
        ({"K = O(t)": [1.0, 0.2, 0.2, 0.2]}, [True, True, False]),  # above K = 8
        ({"K = O(t)": [1.0, 0.05, 0.05, 0.05]}, [True, True, False]),  # it has stopped
    ],
)
def test_the_theorems_claims(changed: dict[str, list[float]], holds: list[bool]) -> None:
    ends = {"K = 1": 0.8, "K = 2": 0.5, "K = 4": 0.3, "K = 8": 0.1, "K = ⌊1 + log t⌋": 0.2}
    runs = {
        **{name: [1.0, end, end, end] for name, end in ends.items()},
        "K = O(t)": [1.0, 0.1, 0.05, 0.01],
        "the theorem's K(t)": [1.0, 0.1, 0.05, 0.01],
        **changed,
    }
    rows = [
        {
            "settings": {"method": name},
            "values": {"excess": excess, "bound": [2.0] * 4, "power_iterations": 2.0},
        }
        for name, excess in runs.items()
    ]
    assert [claim.holds for claim in judge(theorem, rows)] == holds


@pytest.mark.parametrize(
    ("from_sva", "log", "holds"),
    [(0.1, 0.1, [True, True]), (0.3, 0.1, [False, True]), (0.1, 0.3, [True, False])],
)
def test_starts_and_schedules(from_sva: float, log: float, holds: list[bool]) -> None:
    ends = {"DFW-1": 0.2, "DFW-1 from SVA": from_sva, "DFW-1 from the last epoch": 0.2}
    ends |= {"SVA": 0.2, "DFW-2": 0.1, "DFW-log": log, "DFW-linear": 0.1}
    rows = [
        {
            "settings": {"method": name},
            "values": {"objective": [end], "numbers_sent": [1.0], "seconds": [2.0]},
        }
        for name, end in ends.items()
    ]
    assert [claim.holds for claim in judge(starts, rows)] == holds


def test_claims_are_counted_apart_by_whose_they_are() -> None:
    def judged(kind: Any, holds: bool | None) -> Claim:
        return Claim("", lambda rows: ("", True), kind=kind, holds=holds)

    claims = [judged("paper", True), judged("paper", False), judged("paper", None)]
    assert counts([*claims, judged("beyond", True)]) == {
        "the paper's": "1 of 2 hold, 1 not measured",
        "beyond the paper": "1 of 1 hold",
    }
