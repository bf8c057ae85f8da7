"""Compiled loops for the passes over memory that NumPy would make several times.

They release the GIL, run on one thread (the engine runs shards side by side), read and write every
number once, and take float32 or float64 as it comes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import factorial, log
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numba import njit, types
from numba.extending import intrinsic, overload

from dfwtrace._typing import Array, FloatArray

Numba: TypeAlias = Any  # its compiler's own objects, which have no types
Move: TypeAlias = tuple[float, Array, Array]  # a factor, and q and v of the rank-one term q vᵀ
Kernel = TypeVar("Kernel", bound=Callable[..., object])

# Sums may be reordered so that they use vector registers. The order is fixed at compile time:
# the same machine code gives the same bits.
_SUMS = {"reassoc", "contract", "nnan", "nsz"}
# Inside `exp` the order of operations carries the accuracy; only fused multiply-adds are allowed.
_EXACT = {"contract", "nnan", "nsz"}


def _compiled(function: Kernel, fastmath: bool | set[str] = _SUMS) -> Kernel:
    """Compile at the first call, and keep the machine code for other processes where one can."""
    options = {"nogil": True, "error_model": "numpy", "fastmath": fastmath}
    try:
        compiled: Kernel = njit(cache=True, **options)(function)
    except RuntimeError:  # Numba has found no directory that it may write to
        compiled = njit(**options)(function)
    return compiled


_OF_SAME_WIDTH = {types.float32: types.int32, types.float64: types.int64}
_OF_SAME_WIDTH |= {integer: floating for floating, integer in _OF_SAME_WIDTH.items()}


@intrinsic
def _recast(typing_context: Numba, number: Numba) -> Numba:
    """Read a floating-point number's bits as an integer of the same width, or the reverse."""

    def generate(context: Numba, builder: Numba, signature: Numba, arguments: Numba) -> Numba:
        return builder.bitcast(arguments[0], context.get_value_type(signature.return_type))

    return _OF_SAME_WIDTH[number](number), generate


@intrinsic
def _larger(typing_context: Numba, a: Numba, b: Numba) -> Numba:
    """The larger of two numbers, neither NaN: unlike `max`, it becomes a vector instruction."""

    def generate(context: Numba, builder: Numba, signature: Numba, arguments: Numba) -> Numba:
        flags = ("nnan", "nsz")
        greater = builder.fcmp_ordered(">", *arguments, flags=flags)
        return builder.select(greater, *arguments, flags=flags)

    return a(a, a), generate


def _exp(x: float) -> float:
    """exp(x) for x ≤ 0, written so that the compiler turns it into vector instructions."""
    raise TypeError("compiled code only")


@overload(_exp, jit_options={"fastmath": _EXACT, "error_model": "numpy"})
def _overload_exp(x: Numba) -> Callable[[Numba], Numba]:
    """exp(x) = 2^k exp(r), k = round(x / ln 2), |r| ≤ ½ ln 2, exp(r) by its Taylor polynomial.

    Adding 1.5·2^p, where p is the number of bits of a mantissa, rounds x / ln 2 to the integer k
    and leaves k in the lowest bits; shifted to the exponent and added to that of exp(r), they
    multiply by 2^k. The polynomial's error is below half a unit in the last place: r⁸/8! < 6e-9 for
    float32, r¹⁴/14! < 5e-18 for float64. ln 2 is split in two so that x - k ln 2 keeps its digits.
    What is too small to matter is zero, so that no subnormal number slows down the products.
    """
    f: Numba
    i: Numba
    if x == types.float32:
        f, i, high, low = np.float32, np.int32, 0.693359375, log(2.0) - 0.693359375
        smallest, mantissa, degree = f(-80.0), i(23), 7
    else:
        f, i, high, low = np.float64, np.int64, 0.6931471803691238, 1.9082149292705877e-10
        smallest, mantissa, degree = f(-690.0), i(52), 13
    ln2_high, ln2_low, inverse_ln2 = f(high), f(low), f(1.0 / log(2.0))
    rounder, zero = f(1.5 * 2.0 ** int(mantissa)), f(0.0)
    # Coefficients beyond the degree are zero, and the compiler drops them.
    c = [f(1.0 / factorial(k) if k <= degree else 0.0) for k in range(14)]
    c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13 = c

    def exp(x: Numba) -> Numba:
        shifted = x * inverse_ln2 + rounder
        k = shifted - rounder
        r = (x - k * ln2_high) - k * ln2_low
        p = c7 + r * (c8 + r * (c9 + r * (c10 + r * (c11 + r * (c12 + r * c13)))))
        p = c0 + r * (c1 + r * (c2 + r * (c3 + r * (c4 + r * (c5 + r * (c6 + r * p))))))
        bits = i(_recast(p) + i(_recast(shifted) << mantissa))
        return zero if x < smallest else _recast(bits)

    return exp


@_compiled
def softmax_advance(
    S: Array, y: Array, move: Move, R: Array, ahead: Array, product: Array, weights: Array, b: Array
) -> tuple[float, float]:
    """S ← decay·S + q vᵀ, R ← weights·(softmax(S + b) - onehot(y)), product ← R·ahead.

    Returns (Σ -weights·log softmax(S + b)_y, ⟨S, R⟩). Without any weights, all of them are 1.
    """
    (n, m), (decay, q, v) = S.shape, move
    zero, one = S.dtype.type(0), S.dtype.type(1)
    value = inner = 0.0
    for i in range(n):
        scores, residual, q_i = S[i], R[i], q[i]
        highest = S.dtype.type(-np.inf)
        for j in range(m):
            score = decay * scores[j] + q_i * v[j]
            scores[j] = score
            highest = _larger(highest, score + b[j])
        total = zero
        for j in range(m):
            weight = _exp(scores[j] + b[j] - highest)
            residual[j] = weight
            total += weight
        # The label's residual p_y - 1 is minus the sum of the others: nothing cancels as p_y → 1.
        label = y[i]
        own = scores[label]
        residual[label] = zero
        weight_of_row = weights[i] if weights.size else one
        inverse = weight_of_row / total
        others = row_inner = row_product = zero
        for j in range(m):
            probability = residual[j] * inverse
            residual[j] = probability
            others += probability
            row_inner += probability * (scores[j] - own)
            row_product += probability * ahead[j]
        residual[label] = -others
        product[i] = row_product - others * ahead[label]
        # As the residual: -log p_y = -log(1 - (1 - p_y)) keeps its digits, and is never negative.
        away = np.float64(others) / np.float64(weight_of_row) if weight_of_row > zero else 0.0
        if away < 0.5:
            loss = -np.log1p(-away)
        else:
            loss = np.log(np.float64(total)) + np.float64(highest) - np.float64(own + b[label])
        value += np.float64(weight_of_row) * loss
        inner += np.float64(row_inner)
    return value, inner


@_compiled
def softmax_along(
    S: Array, y: Array, move: Move, exponentials: Array, weights: Array, b: Array
) -> tuple[float, float]:
    """First and second derivative at γ of Σ -log softmax(S + γD + b)_y, where D = q vᵀ - S.

    φ'(γ) = Σ_i E_p[D_i] - D_{i,y_i} and φ''(γ) = Σ_i Var_p[D_i] with p = softmax(S_i + γ D_i + b),
    each row times its weight, if there are any. `exponentials` is scratch memory for one row.
    """
    (n, m), (gamma, q, v) = S.shape, move
    zero, one = S.dtype.type(0), S.dtype.type(1)
    slope = curvature = 0.0
    for i in range(n):
        scores, q_i = S[i], q[i]
        highest = S.dtype.type(-np.inf)
        for j in range(m):
            score = scores[j] + gamma * (q_i * v[j] - scores[j]) + b[j]
            exponentials[j] = score
            highest = _larger(highest, score)
        total = first = zero
        for j in range(m):
            weight = _exp(exponentials[j] - highest)
            exponentials[j] = weight
            total += weight
            first += weight * (q_i * v[j] - scores[j])
        mean = first / total
        second = zero
        for j in range(m):
            deviation = q_i * v[j] - scores[j] - mean
            second += exponentials[j] * deviation * deviation
        label, weight_of_row = y[i], np.float64(weights[i] if weights.size else one)
        slope += weight_of_row * (np.float64(mean) - np.float64(q_i * v[label] - scores[label]))
        curvature += weight_of_row * np.float64(second / total)
    return slope, curvature


_COLUMNS_AT_ONCE = 1024  # whose sums stay in the nearest cache while all rows are read


@_compiled
def softmax_columns(
    R: Array, y: Array, inverse: Array, sums: FloatArray, curvature: FloatArray
) -> None:
    """sums += Rᵀ1 and curvature += Σ_i weight_i·p_i(1 - p_i), where R_i = weight_i·(p_i - onehot).

    `inverse` holds one over each weight, and 0 for 0; without any, all weights are 1.
    """
    # weight·p(1 - p) = |r| - r²/weight, also of the label's column, which alone has r < 0.
    (n, m), one = R.shape, R.dtype.type(1)
    for start in range(0, m, _COLUMNS_AT_ONCE):
        stop = min(start + _COLUMNS_AT_ONCE, m)
        sums_here, curvature_here = sums[start:stop], curvature[start:stop]
        for i in range(n):
            residual, inverse_i = R[i, start:stop], inverse[i] if inverse.size else one
            for j in range(stop - start):
                r = residual[j]
                sums_here[j] += np.float64(r)
                curvature_here[j] += np.float64(r - inverse_i * r * r)
    for i in range(n):
        curvature[y[i]] -= 2.0 * np.float64(R[i, y[i]])


@_compiled
def squared_advance(
    S: Array, Y: Array, move: Move, R: Array, ahead: Array, product: Array, weights: Array, b: Array
) -> tuple[float, float]:
    """S ← decay·S + q vᵀ, R ← weights·(S + b - Y), product ← R·ahead.

    Returns (½⟨S + b - Y, R⟩, ⟨S, R⟩). Without any weights, all of them are 1.
    """
    (n, m), (decay, q, v) = S.shape, move
    zero, one = S.dtype.type(0), S.dtype.type(1)
    value = inner = 0.0
    for i in range(n):
        scores, targets, residual, q_i = S[i], Y[i], R[i], q[i]
        weight_of_row = weights[i] if weights.size else one
        row_value = row_inner = row_product = zero
        for j in range(m):
            score = decay * scores[j] + q_i * v[j]
            error = S.dtype.type(score + b[j] - targets[j])
            scores[j] = score
            weighted = weight_of_row * error
            residual[j] = weighted
            row_value += error * weighted
            row_inner += score * weighted
            row_product += weighted * ahead[j]
        product[i] = row_product
        value += np.float64(row_value)
        inner += np.float64(row_inner)
    return 0.5 * value, inner


@_compiled
def squared_along(
    S: Array, Y: Array, move: Move, scratch: Array, weights: Array, b: Array
) -> tuple[float, float]:
    """First and second derivative at γ of ½‖S + γD + b - Y‖², where D = q vᵀ - S.

    φ'(γ) = ⟨S + γD + b - Y, D⟩ and φ''(γ) = ‖D‖², each row times its weight, if there are any.
    """
    (n, m), (gamma, q, v) = S.shape, move
    zero, one = S.dtype.type(0), S.dtype.type(1)
    slope = curvature = 0.0
    for i in range(n):
        scores, targets, q_i = S[i], Y[i], q[i]
        first = second = zero
        for j in range(m):
            direction = q_i * v[j] - scores[j]
            error = S.dtype.type(scores[j] + gamma * direction + b[j] - targets[j])
            first += direction * error
            second += direction * direction
        weight_of_row = np.float64(weights[i] if weights.size else one)
        slope += weight_of_row * np.float64(first)
        curvature += weight_of_row * np.float64(second)
    return slope, curvature


@partial(_compiled, fastmath=False)
def gram_advance(
    G: FloatArray, decay: float, p: FloatArray, v: FloatArray, share: float, B: FloatArray
) -> None:
    """G ← decay·G + p vᵀ - share·B, in one pass."""
    d, m = G.shape
    for i in range(d):
        for j in range(m):
            G[i, j] = decay * G[i, j] + p[i] * v[j] - share * B[i, j]


@_compiled
def laplacian_solve(K: FloatArray, g: FloatArray, x: FloatArray) -> None:
    """Solve Σ_j K_ij (x_i - x_j) = -g_i for symmetric K ≥ 0 and Σ g = 0, in the memory of K and g.

    Elimination of node k leaves K_ij + K_ik K_kj / d with d = Σ_j K_kj: nothing is ever subtracted,
    so weights keep their digits however they differ in size. A node without weights stays at 0.
    """
    m = g.size
    for k in range(m - 1, 0, -1):
        degree = 0.0
        for j in range(k):
            degree += K[k, j]
        K[k, k] = degree
        if degree > 0.0:
            for i in range(k):
                share = K[k, i] / degree
                g[i] += share * g[k]
                for j in range(k):
                    K[i, j] += share * K[k, j]
    for k in range(m):
        x[k] = 0.0
        if k > 0 and K[k, k] > 0.0:
            total = -g[k]
            for j in range(k):
                total += K[k, j] * x[j]
            x[k] = total / K[k, k]


@_compiled
def add_transposed(indptr: Array, indices: Array, data: Array, T: Array, total: FloatArray) -> None:
    """total += XᵀT in float64 for the rows of X, in CSR form; only what X has stored is touched."""
    # Unsigned: signed indices are tested for being negative, as they may be in Python.
    for i in range(indptr.size - 1):
        row = T[i]
        for p in range(np.uintp(indptr[i]), np.uintp(indptr[i + 1])):
            x, sums = np.float64(data[p]), total[np.uintp(indices[p])]
            for j in range(row.size):
                sums[j] += x * np.float64(row[j])


@_compiled
def add_transposed_vector(
    indptr: Array, indices: Array, data: Array, t: Array, total: FloatArray
) -> None:
    """total += Xᵀt, the same for a vector, for which a loop over columns takes too long."""
    for i in range(indptr.size - 1):
        t_i = np.float64(t[i])
        for p in range(np.uintp(indptr[i]), np.uintp(indptr[i + 1])):
            total[np.uintp(indices[p])] += np.float64(data[p]) * t_i


@_compiled
def sparse_times(indptr: Array, indices: Array, data: Array, u: Array, product: Array) -> None:
    """Product ← X u for the rows of X, in CSR form; u is read where X has stored something."""
    for i in range(indptr.size - 1):
        total = np.float64(0.0)
        for p in range(np.uintp(indptr[i]), np.uintp(indptr[i + 1])):
            total += np.float64(data[p]) * np.float64(u[np.uintp(indices[p])])
        product[i] = total
