"""Golub-Kahan bidiagonalisation against the dense SVD."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dfwtrace.linalg.golub_kahan import GolubKahan

Array = npt.NDArray[np.float64]

SPECTRA = {
    "flat": np.ones(9),
    "halving": 0.5 ** np.arange(9),
    "thousandths": 1e-3 ** np.arange(9),
    "harmonic": 1.0 / (1.0 + np.arange(9)),
    "two equal tops": np.array([1.0, 1.0, 0.5, 0.25, 0.1]),
    "two close tops": np.array([1.0, 1.0 - 1e-9, 0.9, 0.8]),
    "rank one": np.array([3.0]),
    "huge": 1e150 * np.array([1.0, 0.7, 0.4]),
    "tiny": 1e-150 * np.array([1.0, 0.7, 0.4]),
}


def with_spectrum(spectrum: Array, d: int, m: int, rng: np.random.Generator) -> Array:
    """A d×m matrix with these singular values and random singular vectors."""
    U = np.linalg.qr(rng.standard_normal((d, spectrum.size)))[0]
    V = np.linalg.qr(rng.standard_normal((m, spectrum.size)))[0]
    return (U * spectrum) @ V.T


def process_of(G: Array, rng: np.random.Generator) -> GolubKahan:
    return GolubKahan(lambda v: G @ v, lambda u: G.T @ u, rng.standard_normal(G.shape[1]))


@pytest.mark.parametrize("name", ["flat", "halving", "thousandths", "harmonic", "two close tops"])
def test_bases_are_orthonormal_and_bidiagonalise(name: str) -> None:
    rng = np.random.default_rng(0)
    G = with_spectrum(SPECTRA[name], 12, 15, rng)
    right: list[Array] = []
    left: list[Array] = []

    def times(v: Array) -> Array:
        right.append(v.copy())
        return G @ v

    def transpose_times(u: Array) -> Array:
        left.append(u.copy())
        return G.T @ u

    process = GolubKahan(times, transpose_times, rng.standard_normal(15)).run(7)
    k = process.steps
    U, V = np.column_stack(left[:k]), np.column_stack(right[:k])
    np.testing.assert_allclose(U.T @ U, np.eye(k), atol=1e-13)
    np.testing.assert_allclose(V.T @ V, np.eye(k), atol=1e-13)
    bidiagonal = np.diag(process.alphas) + np.diag(process.betas[: k - 1], 1)
    np.testing.assert_allclose(U.T @ G @ V, bidiagonal, atol=1e-13)


@pytest.mark.parametrize("name", SPECTRA)
def test_ritz_values_rise_to_the_largest_singular_value(name: str) -> None:
    rng = np.random.default_rng(1)
    G = with_spectrum(SPECTRA[name], 14, 11, rng)
    largest = np.linalg.norm(G, 2)
    process = process_of(G, rng)
    values = [process.run(1).singular_values()[0] for _ in range(12)]
    assert np.all(np.diff(values) >= -1e-14 * largest)
    assert max(values) <= largest * (1.0 + 1e-14)
    assert values[-1] == pytest.approx(largest, rel=1e-12)


def test_top_pair_is_what_it_says() -> None:
    rng = np.random.default_rng(2)
    G = rng.standard_normal((20, 30))
    for steps in (1, 3, 8):
        pair = process_of(G, rng).run(steps).top_pair()
        assert pair.iterations == steps
        assert np.linalg.norm(pair.u) == pytest.approx(1.0, abs=1e-14)
        assert np.linalg.norm(pair.v) == pytest.approx(1.0, abs=1e-14)
        assert pair.u @ G @ pair.v == pytest.approx(pair.sigma, rel=1e-13)
        assert np.linalg.norm(G.T @ pair.u) == pytest.approx(pair.sigma, rel=1e-13)


@pytest.mark.parametrize(
    "G",
    [
        np.outer(np.arange(1.0, 5.0), np.arange(1.0, 7.0)),
        np.arange(1.0, 8.0)[None, :],
        np.arange(1.0, 8.0)[:, None],
        np.array([[-2.5]]),
        np.eye(6),
    ],
    ids=["rank one", "1×n", "n×1", "1×1", "identity"],
)
def test_small_spaces_are_exhausted_and_then_exact(G: Array) -> None:
    process = process_of(G, np.random.default_rng(3)).run(20)
    largest = np.linalg.norm(G, 2)
    assert process.exhausted
    assert process.steps <= min(G.shape) + 1
    assert process.top_pair().sigma == pytest.approx(largest, rel=1e-14)
    assert largest <= process.upper_bound(1e-9) <= largest * (1.0 + 1e-12)


def test_zero_operator() -> None:
    process = process_of(np.zeros((4, 3)), np.random.default_rng(0)).run(5)
    assert process.exhausted
    assert process.steps == 0
    assert process.singular_values()[0] == 0.0
    assert process.upper_bound(1e-9) == 0.0


@pytest.mark.parametrize("name", SPECTRA)
def test_upper_bound_holds_in_every_trial(name: str) -> None:
    rng = np.random.default_rng(4)
    for _ in range(40):
        d, m = (int(size) for size in rng.integers(9, 25, size=2))
        G = with_spectrum(SPECTRA[name], d, m, rng)
        largest = np.linalg.norm(G, 2)
        process = process_of(G, rng)
        for _ in range(8):
            assert process.run(1).upper_bound(1e-9) >= largest


@settings(max_examples=60, deadline=None)
@given(
    d=st.integers(1, 9),
    m=st.integers(1, 9),
    steps=st.integers(1, 9),
    decay=st.floats(0.0, 4.0),
    seed=st.integers(0, 2**32),
)
def test_upper_bound_holds_for_any_shape(
    d: int, m: int, steps: int, decay: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    G = with_spectrum(10.0 ** (-decay * np.arange(min(d, m))), d, m, rng)
    bound = process_of(G, rng).run(steps).upper_bound(1e-9)
    assert bound >= np.linalg.norm(G, 2)


@pytest.mark.parametrize("name", SPECTRA)
def test_upper_bound_is_tight_once_converged(name: str) -> None:
    rng = np.random.default_rng(5)
    for _ in range(10):
        G = with_spectrum(SPECTRA[name], 40, 60, rng)
        bound = process_of(G, rng).run(30).upper_bound(1e-9)
        assert bound <= np.linalg.norm(G, 2) * (1.0 + 1e-10)


def test_upper_bound_tightens_before_the_space_is_exhausted() -> None:
    rng = np.random.default_rng(6)
    G = with_spectrum(1.0 / (1.0 + np.arange(100.0)), 100, 120, rng)
    process = process_of(G, rng)
    excesses = [process.run(4).upper_bound(1e-9) - 1.0 for _ in range(6)]
    assert not process.exhausted
    assert excesses[0] > excesses[1] > excesses[2] > 0.0
    assert 0.0 < excesses[-1] < 1e-12


@pytest.mark.parametrize("steps", [1, 2, 4])
@pytest.mark.parametrize("name", ["halving", "harmonic", "thousandths"])
def test_upper_bound_fails_no_more_often_than_it_says(name: str, steps: int) -> None:
    rng = np.random.default_rng([7, steps])
    G = with_spectrum(SPECTRA[name], 10, 12, rng)
    largest, trials, probability = np.linalg.norm(G, 2), 300, 0.2
    failures = sum(
        process_of(G, rng).run(steps).upper_bound(probability) < largest for _ in range(trials)
    )
    deviation = np.sqrt(probability * (1.0 - probability) / trials)
    assert failures / trials <= probability + 4.0 * deviation


def test_upper_bound_pays_for_certainty() -> None:
    rng = np.random.default_rng(8)
    process = process_of(with_spectrum(SPECTRA["harmonic"], 10, 12, rng), rng).run(3)
    bounds = [process.upper_bound(probability) for probability in (0.2, 1e-3, 1e-9)]
    assert bounds[0] < bounds[1] < bounds[2]


def in_a_subspace(
    G: Array, V: Array, rng: np.random.Generator, dimension: int | None
) -> GolubKahan:
    """The process for G(I - VVᵀ), with V's columns orthonormal: it stays in their complement."""

    def outside(v: Array) -> Array:
        return v - V @ (V.T @ v)

    start = outside(rng.standard_normal(G.shape[1]))
    return GolubKahan(lambda v: G @ outside(v), lambda u: outside(G.T @ u), start, dimension)


@pytest.mark.parametrize("taken_out", [0, 1, 5, 10])
@pytest.mark.parametrize("d", [5, 30])
def test_a_subspace_is_exhausted_after_its_dimension(d: int, taken_out: int) -> None:
    rng = np.random.default_rng(9)
    G = rng.standard_normal((d, 11))
    V = np.linalg.qr(rng.standard_normal((11, taken_out)))[0]
    rest = np.linalg.norm(G - (G @ V) @ V.T, 2)
    process = in_a_subspace(G, V, rng, 11 - taken_out).run(40)
    assert process.exhausted
    assert process.steps <= min(d, 11 - taken_out)
    assert rest * (1.0 - 1e-14) <= process.upper_bound(1e-9) <= rest * (1.0 + 1e-12)


def test_a_smaller_space_needs_less_allowance() -> None:
    """A random start is less likely to miss a direction if there are fewer."""
    rng = np.random.default_rng(10)
    G = with_spectrum(1.0 / (1.0 + np.arange(40.0)), 40, 60, rng)
    V = np.linalg.qr(rng.standard_normal((60, 50)))[0]
    bounds = [
        in_a_subspace(G, V, np.random.default_rng(11), dimension).run(3).upper_bound(1e-9)
        for dimension in (10, None)
    ]
    assert np.linalg.norm(G - (G @ V) @ V.T, 2) <= bounds[0] < bounds[1]


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_upper_bound_in_a_subspace_fails_no_more_often_than_it_says(steps: int) -> None:
    rng = np.random.default_rng([12, steps])
    G = with_spectrum(SPECTRA["harmonic"], 10, 12, rng)
    V = np.linalg.qr(rng.standard_normal((12, 6)))[0]
    rest, trials, probability = np.linalg.norm(G - (G @ V) @ V.T, 2), 300, 0.2
    failures = sum(
        in_a_subspace(G, V, rng, 6).run(steps).upper_bound(probability) < rest
        for _ in range(trials)
    )
    deviation = np.sqrt(probability * (1.0 - probability) / trials)
    assert failures / trials <= probability + 4.0 * deviation
