"""Oracles against the dense SVD."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import kstest
from tests.problems import gradient_of_pairs

import dfwtrace as dt
from dfwtrace.linalg.golub_kahan import Pair
from dfwtrace.linalg.gradient import GradientOperator
from dfwtrace.lmo import SVA, Constant, Constants, Lanczos, Linear, Log, Naive, Power, Setting

Array = npt.NDArray[np.float64]
Gradient = Callable[..., GradientOperator]


def setting(shape: tuple[int, int], seed: int = 0) -> Setting:
    return Setting(1.0, shape, seed, lambda: Constants(1.0, 1.0))


def ask(lmo: dt.lmo.LMO, gradient: GradientOperator, t: int = 0, seed: int = 0) -> Pair:
    return lmo.begin(setting(gradient.shape, seed))(gradient, t)


def check_pair(pair: Pair, G: Array, rel: float = 1e-12) -> None:
    """Unit vectors with uᵀGv = ‖Gᵀu‖ = σ."""
    assert np.linalg.norm(pair.u) == pytest.approx(1.0, abs=1e-12)
    assert np.linalg.norm(pair.v) == pytest.approx(1.0, abs=1e-12)
    assert pair.u @ G @ pair.v == pytest.approx(pair.sigma, rel=rel)
    assert np.linalg.norm(G.T @ pair.u) == pytest.approx(pair.sigma, rel=rel)


def decaying(shape: tuple[int, int], ratio: float, seed: int = 0) -> Array:
    """Singular values 1, ratio, ratio², … ."""
    rng = np.random.default_rng(seed)
    p = min(shape)
    U, V = (np.linalg.qr(rng.standard_normal((size, p)))[0] for size in shape)
    return (U * ratio ** np.arange(p)) @ V.T


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (6, 8), (66, 70), (70, 66), (100, 5)])
def test_naive_is_exact(gradient_of: Gradient, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal(shape) for _ in range(3)]
    G = sum(parts)
    pair = ask(Naive(), gradient_of(*parts))
    check_pair(pair, G, rel=1e-10)
    assert pair.sigma == pytest.approx(np.linalg.norm(G, 2), rel=1e-12)
    assert pair.iterations == 0


@pytest.mark.parametrize("shape", [(5, 5), (70, 80)])
def test_naive_with_equal_top_values_and_rank_one(
    gradient_of: Gradient, shape: tuple[int, int]
) -> None:
    U, V = np.eye(*shape)[:, :2], np.eye(shape[1])[:, :2]
    for G in (U @ np.diag([2.0, 2.0]) @ V.T, np.outer(U[:, 0], V[:, 1])):
        pair = ask(Naive(), gradient_of(G))
        check_pair(pair, G)
        assert pair.sigma == pytest.approx(np.linalg.norm(G, 2), rel=1e-12)


def test_power_is_the_textbook_iteration(gradient_of: Gradient) -> None:
    parts = [np.random.default_rng(j).standard_normal((7, 5)) for j in range(3)]
    G, gradient = sum(parts), gradient_of(*parts)
    v = setting((7, 5), seed=3).random_start(2)
    for k in range(1, 6):
        u = G @ v / np.linalg.norm(G @ v)
        v = G.T @ u / np.linalg.norm(G.T @ u)
        pair = ask(Power(Constant(k)), gradient, t=2, seed=3)
        np.testing.assert_allclose(pair.u, u, atol=1e-12)
        np.testing.assert_allclose(pair.v, v, atol=1e-12)
        assert pair.iterations == k


@pytest.mark.parametrize("lmo", [Power, Lanczos])
@pytest.mark.parametrize("shape", [(20, 30), (30, 20)])
def test_iterations_raise_sigma_to_the_top_from_below(
    gradient_of: Gradient, lmo: type[Power] | type[Lanczos], shape: tuple[int, int]
) -> None:
    G = decaying(shape, 0.8)
    gradient = gradient_of(G)
    for seed in range(5):
        pairs = [ask(lmo(Constant(k)), gradient, seed=seed) for k in range(1, 16)]
        for pair in pairs:
            check_pair(pair, G)
        sigmas = [pair.sigma for pair in pairs]
        assert np.all(np.diff(sigmas) > -1e-15)
        assert sigmas[0] < 0.99
        assert max(sigmas) <= 1.0 + 1e-14
        assert sigmas[-1] == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("k", [3, 5, 8])
def test_lanczos_is_far_more_accurate_than_power(gradient_of: Gradient, k: int) -> None:
    gradient = gradient_of(decaying((40, 50), 0.9))
    errors = {
        lmo: np.median([1.0 - ask(lmo(Constant(k)), gradient, seed=s).sigma for s in range(30)])
        for lmo in (Power, Lanczos)
    }
    assert errors[Lanczos] < errors[Power] / (2.0 if k == 3 else 10.0)


def test_lanczos_stops_where_nothing_is_left_to_find(gradient_of: Gradient) -> None:
    G = np.outer([1.0, 2.0, 2.0], [3.0, 4.0])
    pair = ask(Lanczos(Constant(50)), gradient_of(G))
    check_pair(pair, G)
    assert pair.sigma == pytest.approx(15.0, rel=1e-14)
    assert pair.iterations <= 2


def test_sva_on_one_shard_is_exact(gradient_of: Gradient) -> None:
    for seed in range(5):
        G = np.random.default_rng(seed).standard_normal((12, 9))
        pair = ask(SVA(), gradient_of(G), seed=seed)
        assert np.isnan(pair.sigma)
        assert pair.u @ G @ pair.v == pytest.approx(np.linalg.norm(G, 2), rel=1e-8)


@pytest.mark.parametrize("seed", range(20))
def test_sva_finds_the_signs_jointly(seed: int) -> None:
    """A local pair comes with either sign; averages must not cancel or turn u vᵀ around."""
    rng = np.random.default_rng(seed)
    u, v = (np.linalg.qr(rng.standard_normal((size, 1)))[0][:, 0] for size in (8, 6))
    pairs = []
    for sign in rng.choice([-1.0, 1.0], size=7):
        noisy = [x + 0.15 * rng.standard_normal(x.size) for x in (u, v)]
        pairs.append(tuple(sign * x / np.linalg.norm(x) for x in noisy))
    pair = ask(SVA("agreement"), gradient_of_pairs(pairs))
    # For a gradient near σ u vᵀ, uᵀGv > 0 makes -u vᵀ a direction of descent.
    assert (pair.u @ u) * (pair.v @ v) > 0.9


def test_sva_keeps_pairs_whose_halves_disagree() -> None:
    """Two shards with the same u but opposite v: u vᵀ of the average must not be turned around."""
    e = np.eye(3)
    pairs = [(e[0], e[0]), (-e[0], -e[0]), (e[0], -0.6 * e[0] + 0.8 * e[1])]
    for signs in ("largest-entry", "agreement"):
        pair = ask(SVA(signs), gradient_of_pairs(pairs))
        assert pair.u[0] * pair.v[0] > 0.0


@pytest.mark.parametrize("signs", ["largest-entry", "agreement"])
@pytest.mark.parametrize("seed", range(5))
def test_sva_is_the_average_of_pairs_with_their_signs(
    gradient_of: Gradient, signs: str, seed: int
) -> None:
    """The paper makes u's entry of largest magnitude positive, and v follows."""
    rng = np.random.default_rng(seed)
    parts = [rng.standard_normal((7, 5)) for _ in range(6)]
    rows = [int(n) for n in rng.integers(7, 20, 6)]
    pairs = []
    for G in parts:
        U, _, Vt = np.linalg.svd(G)
        u, v = U[:, 0], Vt[0]
        sign = np.sign(u[np.argmax(np.abs(u))])
        pairs.append(np.concatenate([sign * u, sign * v]))
    weighted = np.array(rows)[:, None] * np.array(pairs)
    if signs == "agreement":  # of all signs, those that make the average longest, about
        weighted = weighted * np.sign(np.linalg.svd(weighted)[0][:, :1])
    u, v = np.split(weighted.sum(axis=0), [7])
    gradient = gradient_of(*parts, rows=rows)
    pair = ask(SVA(signs), gradient, seed=seed)
    expected = np.outer(u, v) / (np.linalg.norm(u) * np.linalg.norm(v))
    np.testing.assert_allclose(np.outer(pair.u, pair.v), expected, atol=1e-6)
    if signs == "largest-entry":
        np.testing.assert_allclose(pair.u, u / np.linalg.norm(u), atol=1e-6)
        by_name = ask(dt.lmo.resolve("sva"), gradient, seed=seed)
        np.testing.assert_array_equal(by_name.u, pair.u)
        np.testing.assert_array_equal(by_name.v, pair.v)


def test_only_signs_that_agree_keep_sva_near_the_exact_oracle() -> None:
    """Twenty workers of 200 rows: as the paper says of its own rule, more columns make it worse."""
    X, Y, _ = dt.datasets.make_multitask(n=4000, d=40, m=40, rank=10, random_state=0)
    options: Any = {
        "radius": 1.0,
        "solver": "dfw",
        "max_iter": 30,
        "engine": dt.LocalEngine(20, n_jobs=1),
    }
    naive, paper, agreeing = (
        dt.solve(dt.LeastSquares(), X, Y, lmo=lmo, **options).objective
        for lmo in ("naive", "sva", SVA("agreement"))
    )
    assert paper > 1.3 * naive
    assert agreeing < 1.1 * naive


def test_sva_descends_on_shards_that_agree(gradient_of: Gradient) -> None:
    rng = np.random.default_rng(1)
    common = 5.0 * decaying((10, 8), 0.5)
    parts = [common + 0.1 * rng.standard_normal((10, 8)) for _ in range(6)]
    G = sum(parts)
    pair = ask(SVA(), gradient_of(*parts))
    assert pair.u @ G @ pair.v > 0.99 * np.linalg.norm(G, 2)


def test_sva_weighs_shards_by_their_rows(gradient_of: Gradient) -> None:
    e = np.eye(4)
    many, few = np.outer(e[0], e[0]), np.outer(e[1], e[1])
    pair = ask(SVA(), gradient_of(many, few, rows=[4000, 4]))
    assert abs(pair.u[1] / pair.u[0]) == pytest.approx(1e-3, rel=1e-6)
    assert abs(pair.v[1] / pair.v[0]) == pytest.approx(1e-3, rel=1e-6)
    even = ask(SVA(), gradient_of(many, few, rows=[4, 4]))
    assert abs(even.u[1] / even.u[0]) == pytest.approx(1.0, rel=1e-6)


def test_sva_ignores_empty_shards_and_zero_gradients(gradient_of: Gradient) -> None:
    G = decaying((6, 5), 0.5)
    alone = ask(SVA(), gradient_of(G))
    crowd = ask(SVA(), gradient_of(None, G, None, np.zeros((6, 5))))
    sign = np.sign(alone.u @ crowd.u)
    np.testing.assert_allclose(sign * crowd.u, alone.u, atol=1e-12)
    np.testing.assert_allclose(sign * crowd.v, alone.v, atol=1e-12)


@pytest.mark.parametrize(
    "lmo",
    [Naive(), SVA(), Lanczos(), Power(), Power(start="previous"), Power(start="sva")],
    ids=["naive", "sva", "lanczos", "power", "power-previous", "power-sva"],
)
def test_zero_gradient(gradient_of: Gradient, lmo: dt.lmo.LMO) -> None:
    pair = ask(lmo, gradient_of(np.zeros((6, 5)), np.zeros((6, 5))))
    assert pair.sigma == 0.0
    assert pair.u.shape == (6,)
    assert pair.v.shape == (5,)
    assert np.isfinite(pair.u).all()
    assert np.isfinite(pair.v).all()


def test_random_start_is_uniform_on_the_sphere() -> None:
    starts = np.array([setting((4, 3), seed=9).random_start(t) for t in range(4000)])
    np.testing.assert_allclose(np.linalg.norm(starts, axis=1), 1.0, atol=1e-14)
    # On the sphere of R³ every coordinate, along any axis, is uniform on [-1, 1] (Archimedes).
    oblique = np.array([2.0, -1.0, 2.0]) / 3.0
    for coordinate in (*starts.T, starts @ oblique):
        assert kstest(coordinate, "uniform", args=(-1.0, 2.0)).pvalue > 1e-3
    np.testing.assert_allclose(np.cov(starts.T), np.eye(3) / 3.0, atol=0.03)


def test_random_start_is_common_to_a_seed_and_an_epoch(gradient_of: Gradient) -> None:
    gradient = gradient_of(decaying((20, 15), 0.95))
    asked = [(0, 0), (0, 0), (1, 0), (0, 1)]
    sigmas = [ask(Power(Constant(1)), gradient, t=t, seed=seed).sigma for seed, t in asked]
    assert sigmas[0] == sigmas[1]
    assert len(set(sigmas)) == 3


def test_previous_start_goes_on_where_the_last_epoch_ended(gradient_of: Gradient) -> None:
    gradient = gradient_of(decaying((20, 15), 0.9))
    oracle = Power(Constant(1), start="previous").begin(setting((20, 15)))
    sigmas = [oracle(gradient, t).sigma for t in range(6)]
    for k, sigma in enumerate(sigmas, 1):
        assert sigma == pytest.approx(ask(Power(Constant(k)), gradient).sigma, rel=1e-12)


@pytest.mark.parametrize("lmo", [Power, Lanczos])
def test_previous_start_in_the_kernel_still_finds_the_pair(
    gradient_of: Gradient, lmo: type[Power] | type[Lanczos]
) -> None:
    oracle = lmo(Constant(3), start="previous").begin(setting((3, 4)))
    oracle(gradient_of(np.outer([0.0, 0.0, 1.0], np.eye(4)[0])), 0)  # ends with v = e₀
    G = np.diag([0.0, 2.0, 1.0, 0.0])[:3]
    pair = oracle(gradient_of(G), 1)
    check_pair(pair, G)
    assert pair.sigma > 1.5


def test_begin_forgets_the_last_run(gradient_of: Gradient) -> None:
    gradient, lmo = gradient_of(decaying((20, 15), 0.9)), Power(Constant(1), start="previous")
    assert ask(lmo, gradient).sigma == ask(lmo, gradient).sigma


def test_sva_start_is_the_top_vector_on_one_shard(gradient_of: Gradient) -> None:
    gradient = gradient_of(decaying((20, 15), 0.9))
    assert ask(Power(Constant(1), start="sva"), gradient).sigma == pytest.approx(1.0, abs=1e-9)
    assert ask(Power(Constant(1)), gradient).sigma < 0.9


def test_names() -> None:
    assert dt.lmo.resolve("power-1") == Power(Constant(1))
    assert dt.lmo.resolve("power-2") == Power(Constant(2))
    assert dt.lmo.resolve("power-log", 0.5) == Power(Log(0.5))
    assert dt.lmo.resolve("power-linear") == Power(Linear())
    assert dt.lmo.resolve("naive") == Naive()
    assert dt.lmo.resolve("sva") == SVA()
    assert dt.lmo.resolve("lanczos") == Lanczos()
    own = Lanczos(Constant(9))
    assert dt.lmo.resolve(own) is own


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: dt.lmo.resolve("power-3"), ValueError, "lmo must be one of power-1, .*'power-3'"),
        (lambda: dt.lmo.resolve(Power), TypeError, "lmo must be a name or an object"),
        (lambda: dt.lmo.resolve(2), TypeError, "lmo must be a name or an object"),
        (lambda: Power(start="zero"), ValueError, "start must be one of random, previous, sva"),
        (lambda: Power(2), TypeError, "schedule must be a Schedule"),
        (lambda: SVA(signs="same"), ValueError, r"^signs must be one of .*, got 'same'\.$"),
        (lambda: SVA(signs=None), ValueError, r"^signs must be one of .*, got None\.$"),
        (lambda: Lanczos(start="zero"), ValueError, "start must be one of random, previous, sva"),
    ],
)
def test_bad_oracles_are_refused(
    make: Callable[[], object], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        make()
