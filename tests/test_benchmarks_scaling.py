"""The model of scaling: what it says where the answer is known, and of what is really sent."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import dfwtrace as dt

# `benchmarks` and `tests` are run from the checkout and never installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.scaling_costs import message_seconds
from benchmarks.scaling_model import (
    LOOPBACK,
    Compute,
    Costs,
    Exchange,
    Network,
    Topology,
    bytes_on_wire,
    epoch_seconds,
    exchanges,
    round_seconds,
)
from tests.engines.resident.groups import GroupEngine

ROUNDS = exchanges(d=2000, m=1000, iterations=2)
# One microsecond a row in every round.
COMPUTE = Compute(np.array([100, 10_000]), np.outer([1e-4, 1e-2], np.ones(len(ROUNDS))))
COSTS = Costs(COMPUTE, hop=2e-4, message=1e-5, byte=1e-9, master=1e-3)
NETWORK = Network(bandwidth=1e8, latency=1e-4)


def star(n_workers: int) -> Topology:
    return Topology(n_workers, n_workers)


def test_rounds_of_an_epoch() -> None:
    assert [exchange.method for exchange in ROUNDS] == [
        *("matvec", "rmatvec", "matvec", "rmatvec"),
        *("update", "report"),
    ]
    # The paper's 2K(d + m) for the oracle, d + m for the update, two values.
    assert sum(exchange.down + exchange.up for exchange in ROUNDS) == 5 * 3000 + 2


def test_compute_between_and_beyond_what_was_measured() -> None:
    assert COMPUTE.at(550) == pytest.approx(np.full(6, 5.5e-4))
    assert COMPUTE.at(40_000) == pytest.approx(np.full(6, 4e-2))
    assert COMPUTE.at(1) == pytest.approx(np.full(6, 1e-4))  # no less than the least one seen


@pytest.mark.parametrize("network", [LOOPBACK, NETWORK])
def test_one_worker_is_compute_and_rounds(network: Network) -> None:
    numbers = sum(exchange.down + exchange.up for exchange in ROUNDS)
    on_the_way = 8 * numbers * (2e-9 + 1.0 / network.bandwidth)  # handled at both ends
    fixed = 6 * (2e-4 + 1e-5 + network.latency)
    predicted = epoch_seconds(5000, star(1), ROUNDS, COSTS, network)
    assert predicted == pytest.approx(1e-3 + 6 * 5e-3 + fixed + on_the_way)


def test_star_grows_linearly() -> None:
    exchange = Exchange("matvec", 1000, 2000)
    seconds = [round_seconds(star(n), exchange, 0.0, COSTS, NETWORK) for n in (500, 1000, 2000)]
    # For every worker more, either end of the driver's link has a message more to carry.
    per_worker = 1e-5 + 8 * 2000 * (1e-9 + 1e-8)
    assert seconds[1] - seconds[0] >= 500 * per_worker
    assert seconds[2] - seconds[1] == pytest.approx(2 * (seconds[1] - seconds[0]), rel=1e-6)


def test_tree_grows_with_its_levels() -> None:
    full = [Topology(sum(16**level for level in range(1, k + 1)), 16) for k in (1, 2, 3)]
    assert [topology.levels for topology in full] == [1, 2, 3]
    exchange = Exchange("update", 3000, 0)
    one, two, three = (round_seconds(t, exchange, 0.0, COSTS, NETWORK) for t in full)
    assert two == pytest.approx(2 * one, rel=0.1)
    assert three == pytest.approx(3 * one, rel=0.1)


def test_tree_is_a_star_until_the_fan_in() -> None:
    for exchange in ROUNDS:
        tree, flat = (
            round_seconds(t, exchange, 1e-3, COSTS, NETWORK) for t in (Topology(16, 16), star(16))
        )
        assert tree == flat


def test_more_workers_help_as_long_as_computing_takes_longest() -> None:
    free = replace(COSTS, hop=0.0, message=0.0, byte=0.0, master=0.0)
    workers = [2**k for k in range(8)]
    n = 1_000_000
    for topology in (star, lambda n_workers: Topology(n_workers, 16)):
        perfect = [epoch_seconds(n, topology(N), ROUNDS, free, LOOPBACK) for N in workers]
        assert perfect == pytest.approx([6 * n * 1e-6 / N for N in workers])
        real = [epoch_seconds(n, topology(N), ROUNDS, COSTS, LOOPBACK) for N in workers]
        assert all(later < earlier for earlier, later in pairwise(real))


def test_slow_networks_take_longer() -> None:
    topology = Topology(300, 16)
    slow, fast = (
        epoch_seconds(10_000, topology, ROUNDS, COSTS, Network(bandwidth, 0.0))
        for bandwidth in (1e8, 1e9)
    )
    at_once = epoch_seconds(10_000, topology, ROUNDS, COSTS, LOOPBACK)
    assert slow > fast > at_once


def test_work_on_the_way_overlaps_with_that_of_children() -> None:
    """Workers above others pass requests on first, so that all compute at the same time."""
    topology = Topology(272, 16)
    exchange = Exchange("matvec", 10, 10)
    idle, busy = (round_seconds(topology, exchange, work, COSTS, NETWORK) for work in (0.0, 1.0))
    assert 1.0 < busy <= idle + 1.0 + 1e-9


@pytest.mark.parametrize(("n_workers", "fan_in"), [(1, 16), (2, 16), (5, 16), (9, 2), (11, 3)])
def test_bytes_are_those_that_really_travel(n_workers: int, fan_in: int) -> None:
    d, m = 70, 50
    X, y, _ = dt.datasets.make_multiclass(n=60, d=d, m=m, rank=3, random_state=0)
    result = dt.solve(
        dt.Multinomial(n_classes=m),
        X,
        y,
        radius=10.0,
        solver="dfw",
        lmo="power-2",
        step="harmonic",
        max_iter=3,
        representation="implicit",
        engine=GroupEngine(n_shards=n_workers, n_workers=n_workers, fan_in=fan_in),
        verbose=False,
    )
    topology = Topology(n_workers, fan_in)
    vectors = sum(topology.vectors_up)
    rounds = exchanges(d, m, iterations=2)
    second = [record for record in result.rounds if record["epoch"] == 2]
    assert [record["method"] for record in second] == [exchange.method for exchange in rounds]
    for record, exchange in zip(second, rounds, strict=True):
        framing = record["bytes_on_wire"] - bytes_on_wire(topology, [exchange])
        assert 0 < framing < 150 * n_workers + 40 * vectors


def test_messages_take_some_time_and_bytes_more() -> None:
    message, byte = message_seconds()
    assert message > 0.0
    assert byte >= 0.0
