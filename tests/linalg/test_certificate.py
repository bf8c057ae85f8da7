"""The certificate is an upper bound: of σ₁ against the dense SVD, of the gap by its formula."""

from collections.abc import Callable, Iterator
from contextlib import closing

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.problems import problem_with_gradients

from dfwtrace.linalg import certificate
from dfwtrace.linalg.certificate import (
    FAILURE_PROBABILITY,
    certify,
    dense_bound,
    lanczos_bound,
)
from dfwtrace.linalg.gradient import GradientOperator

Array = npt.NDArray[np.float64]
Gradient = Callable[..., GradientOperator]


@pytest.fixture
def products_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every gradient too large to be gathered."""
    monkeypatch.setattr(certificate, "DENSE_ENTRIES", 0)
    monkeypatch.setattr(certificate, "SMALL_ENTRIES", 0)


def matrices() -> Iterator[Array]:
    rng = np.random.default_rng(0)
    for shape in [(1, 1), (1, 9), (9, 1), (2, 7), (7, 2), (3, 3), (3, 50), (40, 30), (30, 40)]:
        yield rng.standard_normal(shape)
    yield np.eye(6)
    yield np.diag([2.0, 2.0, 1.0, 0.0])
    yield np.outer(rng.standard_normal(8), rng.standard_normal(5))
    yield np.diag(1e-3 ** np.arange(8))
    yield np.diag([1.0, 1.0 - 1e-12, 1.0 - 1e-9, 0.5])
    for decay in np.tile([0.5, 0.3, 0.1, 0.03], 5):
        U, V = (np.linalg.qr(rng.standard_normal((size, 16)))[0] for size in (20, 16))
        yield (U * decay ** np.arange(16.0)) @ V.T


@pytest.mark.parametrize("scale", [1.0, 1e150, 1e-150])
def test_dense_bound_is_above_and_within_a_billionth(scale: float) -> None:
    for G in matrices():
        largest = np.linalg.norm(G, 2)
        bound = dense_bound(scale * G) / scale
        # Above by more than both may have been rounded.
        assert largest * (1.0 + 1e-13) <= bound <= largest * (1.0 + 1e-9)


def test_dense_bound_of_zero() -> None:
    assert dense_bound(np.zeros((4, 3))) == 0.0


def test_dense_bound_where_the_eigensolver_starts_in_the_wrong_space() -> None:
    """A start without any part in the top singular vector must not hide it."""
    start = np.random.default_rng(0).standard_normal(6)
    basis = np.linalg.qr(np.column_stack([start, np.random.default_rng(1).random((6, 5))]))[0]
    for spectrum in ([1.0, 2.0, 0, 0, 0, 0], [1.0, 1.0 + 1e-6, 0.5, 0.5, 0, 0]):
        assert dense_bound((basis * spectrum) @ basis.T) > max(spectrum)


def test_gap_is_the_formula(gradient_of: Gradient) -> None:
    G = np.random.default_rng(1).standard_normal((7, 5))
    found = certify(gradient_of(G), -0.25, 3.0)
    assert found.method == "dense"
    assert found.failure_probability == 0.0
    assert found.rounding == 0.0
    assert found.gap == pytest.approx(-0.25 + 3.0 * np.linalg.norm(G, 2), rel=1e-9)
    assert found.gap == -0.25 + 3.0 * found.sigma_bound


def test_rounding_is_added(gradient_of: Gradient) -> None:
    gradient = gradient_of(np.random.default_rng(2).standard_normal((7, 5)))
    exact = certify(gradient, -0.25, 3.0)
    rounded = certify(gradient, -0.25, 3.0, precision=1e-3)
    scaled = certify(gradient, -0.25, 3.0, precision=1e-3, scale=100.0)
    assert rounded.rounding >= 1e-3 * (3.0 * exact.sigma_bound + 0.25) * (1.0 - 1e-12)
    assert rounded.gap == pytest.approx(exact.gap + rounded.rounding, rel=1e-12)
    assert scaled.gap == pytest.approx(rounded.gap + 0.1, rel=1e-12)


def test_gap_is_never_negative(gradient_of: Gradient) -> None:
    assert certify(gradient_of(np.eye(3)), -1.0 - 1e-6, 1.0).gap == 0.0


@pytest.mark.parametrize("entries", [0, 10**6])
def test_zero_gradient_leaves_what_rounding_may_hide(
    gradient_of: Gradient, monkeypatch: pytest.MonkeyPatch, entries: int
) -> None:
    monkeypatch.setattr(certificate, "DENSE_ENTRIES", entries)
    found = certify(gradient_of(np.zeros((4, 3))), 0.0, 5.0, precision=1e-6, scale=1.0)
    assert (found.gap, found.rounding, found.sigma_bound) == (1e-6, 1e-6, 0.0)


@pytest.mark.usefixtures("products_only")
def test_products_alone_never_bound_too_low(gradient_of: Gradient) -> None:
    for index, G in enumerate(matrices()):
        found = certify(gradient_of(G), 0.0, 2.0, seed=index)
        assert found.method == "lanczos"
        assert found.failure_probability == FAILURE_PROBABILITY <= 1e-9
        assert found.sigma_bound >= np.linalg.norm(G, 2) * (1.0 - 1e-15)


@pytest.mark.usefixtures("products_only")
@pytest.mark.parametrize("share", [0.5, 0.01])
def test_products_alone_find_the_gap_to_a_tenth(gradient_of: Gradient, share: float) -> None:
    """Near the optimum ⟨W, G⟩ cancels nearly all of μσ₁: σ₁ must then be known that much better."""
    spectrum = 1.0 / (1.0 + np.arange(60.0))
    rng = np.random.default_rng(3)
    U, V = (np.linalg.qr(rng.standard_normal((size, 60)))[0] for size in (70, 80))
    gap = share * 2.0
    found = certify(gradient_of((U * spectrum) @ V.T), gap - 2.0, 2.0)
    assert gap <= found.gap <= 1.12 * gap


@pytest.mark.usefixtures("products_only")
def test_products_alone_stop_where_a_small_gap_is_not_wanted(gradient_of: Gradient) -> None:
    G = np.random.default_rng(4).standard_normal((150, 160))
    largest = np.linalg.norm(G, 2)
    rounds = []
    for wanted in (0.0, 20.0 * largest):
        gradient = gradient_of(G)
        assert certify(gradient, 1e-3 - largest, 1.0, wanted=wanted).gap >= 1e-3 * (1.0 - 1e-9)
        rounds.append(gradient.workers.take()[2])
    assert rounds[1] < rounds[0]


@pytest.mark.usefixtures("products_only")
def test_seeds_draw_different_starts(gradient_of: Gradient) -> None:
    gradient = gradient_of(np.random.default_rng(5).standard_normal((60, 70)))
    bounds = [certify(gradient, 0.0, 1.0, seed=seed).sigma_bound for seed in (0, 0, 1)]
    assert bounds[0] == bounds[1] != bounds[2]


# The bound with the directions of W's factors taken out.

D, M, TOP = 45, 50, 5


def spectrum_of(kind: str, rng: np.random.Generator) -> Array:
    """45 singular values, the largest first and 1."""
    if kind == "clustered":  # as at an optimum: W's directions have the same value, about
        close = 1.0 - 10.0 ** rng.uniform(-12, -2) * np.arange(TOP)
        return np.concatenate([close, np.sort(rng.uniform(0.0, 0.95, D - TOP))[::-1]])
    if kind == "flat":
        return np.ones(D)
    if kind == "low rank":
        return np.concatenate([np.sort(rng.uniform(0.5, 1.0, TOP))[::-1], np.zeros(D - TOP)])
    return 10.0 ** (-rng.uniform(0.01, 1.0) * np.arange(D))  # "decaying"


# Vectors that are, or are not, along the leading right singular vectors V.
NEAR: dict[str, Callable[[Array, np.random.Generator], Array | None]] = {
    "none": lambda V, rng: None,
    "no columns": lambda V, rng: V[:, :0],
    "exact": lambda V, rng: V[:, :TOP],
    "rough": lambda V, rng: V[:, :TOP] + 1e-3 * rng.standard_normal((M, TOP)),
    "too few": lambda V, rng: V[:, : TOP - 2],
    "too many": lambda V, rng: V[:, : 4 * TOP],
    "all": lambda V, rng: V,
    "wrong": lambda V, rng: rng.standard_normal((M, TOP)),
    "the smallest": lambda V, rng: V[:, -TOP:],
    "repeated": lambda V, rng: np.hstack([V[:, :2]] * 3),
    "zero": lambda V, rng: np.zeros((M, TOP)),
    "badly scaled": lambda V, rng: (
        (V[:, :TOP] @ rng.standard_normal((TOP, TOP))) * 10.0 ** np.arange(-6, 4, 2)
    ),
}
SPECTRA = ["clustered", "flat", "low rank", "decaying"]


@pytest.mark.parametrize("near", NEAR)
@settings(max_examples=12)
@given(
    kind=st.sampled_from(SPECTRA),
    share=st.sampled_from([1.0, 0.01, 1e-5]),
    tall=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_bound_is_never_below_the_truth_whatever_is_taken_out(
    near: str, kind: str, share: float, tall: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    V = np.linalg.qr(rng.standard_normal((M, D)))[0]
    d = D + 10 if tall else D
    U = np.linalg.qr(rng.standard_normal((d, D)))[0]
    G = (U * spectrum_of(kind, rng)) @ V.T
    largest = float(np.linalg.norm(G, 2))
    with closing(problem_with_gradients(G)) as problem:
        taken = NEAR[near](V, rng)
        bound = lanczos_bound(problem.gradient, (share - 1.0) * largest, 1.0, 0, 0.0, 1e-9, taken)
    assert bound >= largest * (1.0 - 1e-14)  # but for the rounding of the products
    # Within a tenth of the gap, as without, if the leading directions are among those taken out.
    if near not in ("wrong", "the smallest", "zero"):
        assert bound <= largest * (1.0 + 0.12 * share + 1e-12)


@pytest.mark.parametrize("error", [0.0, 1e-3])
def test_with_the_leading_directions_out_fewer_products_are_needed(
    gradient_of: Gradient, error: float
) -> None:
    """The values of W's directions are all but equal at an optimum: hard for Lanczos alone."""
    rng = np.random.default_rng(6)
    U, V = (np.linalg.qr(rng.standard_normal((size, 150)))[0] for size in (160, 170))
    spectrum = np.concatenate([1.0 - 1e-6 * np.arange(10), np.linspace(0.5, 0.0, 140)])
    G = (U * spectrum) @ V.T
    rounds = []
    for near in (None, V[:, :10] + error * rng.standard_normal((170, 10))):
        gradient = gradient_of(G)
        bound = lanczos_bound(gradient, 1e-4 - 1.0, 1.0, 0, 1e-4, 1e-9, near)
        assert 1.0 - 1e-14 <= bound <= 1.0 + 0.12e-4
        rounds.append(gradient.workers.take()[2])
    assert rounds[1] < 0.5 * rounds[0]


def test_few_directions_of_a_large_gradient_make_products_the_way(
    gradient_of: Gradient, monkeypatch: pytest.MonkeyPatch
) -> None:
    gradient = gradient_of(np.random.default_rng(7).standard_normal((80, 90)))
    V = np.linalg.qr(np.random.default_rng(8).standard_normal((90, 60)))[0]
    assert certify(gradient, 0.0, 1.0, near=V[:, :5]).method == "dense"
    monkeypatch.setattr(certificate, "SMALL_ENTRIES", 80 * 90 - 1)
    few, many = (certify(gradient, 0.0, 1.0, near=V[:, :r]) for r in (5, 60))
    assert (few.method, few.failure_probability) == ("lanczos", FAILURE_PROBABILITY)
    assert (many.method, many.failure_probability) == ("dense", 0.0)
    assert few.sigma_bound >= many.sigma_bound * (1.0 - 1e-9)


@pytest.mark.usefixtures("products_only")
def test_zero_gradient_has_no_gap_whatever_is_taken_out(gradient_of: Gradient) -> None:
    near = np.eye(60)[:, :3]
    found = certify(gradient_of(np.zeros((50, 60))), 0.0, 5.0, near=near, precision=1e-6)
    assert (found.gap, found.sigma_bound, found.method) == (0.0, 0.0, "lanczos")


@pytest.mark.parametrize("scale", [1e-120, 1e70])
def test_scale_does_not_matter_to_what_is_taken_out(gradient_of: Gradient, scale: float) -> None:
    """Up to where fourth powers still fit."""
    rng = np.random.default_rng(9)
    U, V = (np.linalg.qr(rng.standard_normal((size, 50)))[0] for size in (60, 50))
    spectrum = 1.0 / (1.0 + np.arange(50.0))
    gradient = gradient_of(scale * (U * spectrum) @ V.T)
    bound = lanczos_bound(gradient, -0.5 * scale, 1.0, 0, 0.0, 1e-9, V[:, :4])
    assert 1.0 - 1e-14 <= bound / scale <= 1.06
