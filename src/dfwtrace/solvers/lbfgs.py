"""L-BFGS: a direction from the last few changes of a point and of the gradient there."""

from __future__ import annotations

from collections import deque

import numpy as np

from dfwtrace._typing import FloatArray, Memory
from dfwtrace.linalg.golub_kahan import Product

_MEMORY = 1 << 28  # bytes that the pairs of changes may take


class LBFGS:
    """The last pairs of changes (x' - x, g' - g), and the direction -H g that they give."""

    def __init__(self, size: int) -> None:
        pairs = min(20, max(3, _MEMORY // (16 * max(1, size))))
        self.pairs: deque[tuple[FloatArray, FloatArray, float]] = deque(maxlen=pairs)

    def memory(self) -> Memory:
        """The pairs with their inverse curvatures, the oldest first, and room for how many."""
        return {"pairs": list(self.pairs), "room": self.pairs.maxlen}

    def restore(self, memory: Memory) -> None:
        self.pairs = deque(memory["pairs"], maxlen=memory["room"])

    def map(self, change: Product) -> LBFGS:
        """The same memory in other coordinates."""
        kept = [(change(dx), change(dg)) for dx, dg, _ in self.pairs]
        other = LBFGS(kept[0][0].size if kept else 0)
        for dx, dg in kept:
            other.remember(dx, dg)
        return other

    def remember(self, dx: FloatArray, dg: FloatArray) -> None:
        """Keep a pair, unless its curvature ⟨dx, dg⟩ is not clearly positive."""
        curvature = float(dx @ dg)
        if curvature > 1e-10 * float(np.linalg.norm(dx)) * float(np.linalg.norm(dg)):
            self.pairs.append((dx, dg, 1.0 / curvature))

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
        dx, dg, inverse = self.pairs[-1]
        q = first(q) / (inverse * float(dg @ first(dg)))
        for (dx, dg, inverse), share in zip(self.pairs, reversed(shares), strict=True):
            q += (share - inverse * float(dg @ q)) * dx
        return -q
