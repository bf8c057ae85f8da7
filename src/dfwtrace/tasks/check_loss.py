"""Check a loss on a few rows of scores: its methods against finite differences."""

from __future__ import annotations

import numpy as np

from dfwtrace._typing import Array, FloatArray
from dfwtrace.losses import Loss
from dfwtrace.tasks.differences import (
    CLOSE,
    ROUGHLY,
    among,
    close,
    derivative,
    natural_scale,
    norm,
    second_derivatives,
)
from dfwtrace.validation import as_number


def check_loss(loss: Loss, y: Array, width: int) -> list[str]:
    """Check a loss on rows of scores."""
    name, rng = type(loss).__name__, np.random.default_rng(0)
    shape = len(y), width

    def evaluate(S: FloatArray, rows: slice = slice(None)) -> tuple[float, FloatArray]:
        given, R = S[rows].copy(), np.zeros((len(y[rows]), width))
        value = as_number(loss.evaluate(given, y[rows], R), f"{name}.evaluate")
        if not np.array_equal(given, S[rows]):
            raise ValueError(f"{name}.evaluate is wrong: it changes the scores S that it is given.")
        return value, R

    def value(S: FloatArray) -> float:
        return evaluate(S)[0]

    zero, D = np.zeros(shape), rng.standard_normal(shape)
    scale = natural_scale(lambda t: [value(t * D), value(-t * D)], value(zero))
    smoothness = as_number(loss.smoothness, f"{name}.smoothness")
    ways = [rng.standard_normal(shape), np.eye(width)[rng.integers(0, width, len(y))]]
    ways.append(ways[1] - np.roll(ways[1], 1, axis=1) if width > 1 else -ways[1])
    for S in (zero, scale * rng.standard_normal(shape), 0.1 * scale * rng.standard_normal(shape)):
        F, R = evaluate(S)
        D = scale * rng.standard_normal(shape)
        slope = float(np.vdot(R, D))
        rate = derivative(lambda g, S=S, D=D: value(S + g * D))  # type: ignore[misc]
        if not close(slope, rate, abs(F) + float(np.abs(R * D).sum())):
            raise ValueError(
                f"{name}.evaluate is wrong: the residual that it writes gives its value a slope of "
                f"{slope:.6g} along a change of the scores, but finite differences give {rate:.6g}."
            )
        values = loss.row_values(S.copy(), y)
        if values is not None and (
            np.shape(values) != (len(y),) or not close(F, float(np.sum(values)), abs(F))
        ):
            raise ValueError(
                f"{name}.row_values is wrong: it must give the loss of each of the {len(y)} rows, "
                f"whose sum evaluate gives as {F:.6g}."
            )
        half = len(y) // 2
        parts = [evaluate(S, rows) for rows in (slice(half), slice(half, None))]
        if not close(F, sum(part[0] for part in parts), abs(F)) or not close(
            R, np.vstack([part[1] for part in parts]), norm(R)
        ):
            raise ValueError(
                f"{name}.evaluate is wrong: it must be a sum over rows, but gives {F:.6g} for "
                f"{len(y)} rows and {parts[0][0]:.6g} and {parts[1][0]:.6g} for their halves."
            )
        for way in (D, *(scale * each for each in ways)):
            # Of each row: D_iᵀ∇²ℓ D_i, about; it lies between 0 and smoothness·‖D_i‖².
            ahead, behind = (evaluate(S + h * way)[1] for h in (1e-3, -1e-3))
            second = np.sum((ahead - behind) * way, axis=1) / 2e-3
            squares = np.sum(way**2, axis=1)
            size = float(np.abs(second).max() + np.abs(R).max() * scale)
            if second.min() < -ROUGHLY * size:
                raise ValueError(f"{name}.evaluate is wrong: it must be convex in the scores.")
            if np.any(second > smoothness * squares * (1.0 + ROUGHLY) + 1e-6 * size):
                most = float(np.max(second / squares))
                raise ValueError(
                    f"{name}.smoothness is wrong: it is {smoothness:.6g}, but the second "
                    f"derivative of a row's loss reaches {most:.6g}."
                )
    checked = [f"{name}.{each}" for each in ("check_targets", "evaluate", "smoothness")]
    if type(loss).row_values is not Loss.row_values:
        checked.append(f"{name}.row_values")
    if type(loss).curvature is not Loss.curvature:
        checked.append(f"{name}.curvature")
        tried = []
        for _ in range(3):
            S, D = scale * rng.standard_normal((2, *shape))
            given = as_number(loss.curvature(S, evaluate(S)[1], D), f"{name}.curvature")
            slopes = lambda g, S=S, D=D: float(np.vdot(evaluate(S + g * D)[1], D))  # noqa: E731
            tried.append((given, second_derivatives(slopes)))
        if not any(among(given, found, CLOSE * abs(F)) for given, found in tried):
            given, found = tried[0]
            raise ValueError(
                f"{name}.curvature is wrong: it gives a second derivative of {given:.6g} along D, "
                f"but finite differences of the residual give {found[0]:.6g}."
            )
    if loss.quadratic:
        first, second_, third = (evaluate(S + k * D)[1] for k in (0.0, 1.0, 2.0))
        if not close(third - second_, second_ - first, norm(third) + norm(first)):
            raise ValueError(f"{name}.quadratic is wrong: it is True, but F is not quadratic.")
    return checked
