"""L-BFGS: a direction from the last few changes of a point and of the gradient there."""

from __future__ import annotations

import numpy as np

from dfwtrace._typing import FloatArray, Memory
from dfwtrace.linalg.golub_kahan import Product

# Pairs of changes that are kept, unless they take more than _MEMORY bytes; a few at least.
_PAIRS, _FEWEST, _MEMORY = 160, 3, 1 << 28


def room(size: int) -> int:
    """Pairs that are kept of vectors that long."""
    return min(_PAIRS, max(_FEWEST, _MEMORY // (16 * size)))


class LBFGS:
    """The last pairs of changes (x' - x, g' - g), and the direction -H g that they give."""

    def __init__(self) -> None:
        self.pairs: list[tuple[FloatArray, FloatArray, float]] = []

    def memory(self) -> Memory:
        """The pairs with their inverse curvatures, the oldest first."""
        return {"pairs": list(self.pairs)}

    def restore(self, memory: Memory) -> None:
        self.pairs = [(dx, dg, float(inverse)) for dx, dg, inverse in memory["pairs"]]

    def map(self, change: Product) -> LBFGS:
        """The same memory in other coordinates."""
        other = LBFGS()
        for dx, dg, _ in self.pairs:
            other.remember(change(dx), change(dg))
        return other

    def remember(self, dx: FloatArray, dg: FloatArray) -> None:
        """Keep a pair, unless its curvature ⟨dx, dg⟩ is not clearly positive."""
        curvature = float(dx @ dg)
        if curvature > 1e-10 * float(np.linalg.norm(dx)) * float(np.linalg.norm(dg)):
            self.pairs.append((dx, dg, 1.0 / curvature))
            del self.pairs[: -room(dx.size)]

    def direction(self, g: FloatArray, first: Product = np.positive) -> FloatArray | None:
        """-H g by the two-loop recursion (Nocedal, 1980); None before the first pair."""
        # `first` multiplies by what H is, up to a factor, where the pairs say nothing.
        if not self.pairs:
            return None
        q, shares = g.copy(), []
        for dx, dg, inverse in reversed(self.pairs):
            share = inverse * float(dx @ q)
            shares.append(share)
            q -= share * dg
        _, dg, inverse = self.pairs[-1]
        q = first(q) / (inverse * float(dg @ first(dg)))
        for (dx, dg, inverse), share in zip(self.pairs, reversed(shares), strict=True):
            q += (share - inverse * float(dg @ q)) * dx
        return -q
