"""An intercept that no constraint holds back: for every W the best b of the scores XW + 1bᵀ.

The solvers then minimise F̃(W) = min_b F(W, b), which is convex too, and whose gradient is that of F
in W at the best b. Finding it takes rounds with vectors of m numbers, and few of them: b was the
best one for a W nearby, and L-BFGS remembers the curvature.
"""

from __future__ import annotations

import numpy as np

from dfwtrace._typing import FloatArray, Memory
from dfwtrace.engines import Workers
from dfwtrace.solvers.lbfgs import LBFGS
from dfwtrace.tasks.task import Centre
from dfwtrace.validation import require_finite

_STEPS, _TRIES = 200, 60  # steps for one W at the most, and tries for one step
# A step must leave at most the first share of its slope (Wolfe's rule): F may be almost linear in
# b, and its curvature is seen only where its slope changes. One beyond the lowest F must lower F by
# the second share of what the slope promised (Armijo's rule), or, where rounding hides whether it
# did, leave at most the third of the slope.
_LEFT, _ENOUGH, _LITTLE = 0.9, 1e-4, 0.5
# b is good enough when another step would lower F by less than this share of its rounding error,
# or of F itself: a certified gap of 1e-8·F is then off by a thousandth of it at the most.
_SHARE_OF_ROUNDING, _SHARE_OF_OBJECTIVE = 1e-3, 1e-14
# A class that no row has wants its b at -∞, where F is flat and a step by the curvature goes
# anywhere: b stays where it would change F by less than this, relative to the rows.
_NOTHING = 1e-13
_FEW_DIGITS = 1e-9  # the precision of float32 is above this one
_FLATTEST = 1e-6  # smallest ratio of the columns' curvatures that L-BFGS begins with
# A gradient whose sum is below this share of its size, or rounding, has none along (1, …, 1): F
# does not feel it.
_BALANCED = 1e-9


class Intercept:
    """The present b, and the rounds that keep it at its best."""

    def __init__(self, workers: Workers, centre: Centre, curvature: float, rounding: float) -> None:
        self._workers, self._precision = workers, rounding
        self._smoothness = curvature  # the largest of a row's loss: gives the first step's length
        self.centre = centre.x  # the mean of the rows, which X is centred at: b hardly moves with W
        self._memory = LBFGS()
        self._gradient, self._weight = np.zeros(centre.y.size), 0.0
        self._curvature = np.ones(centre.y.size)  # of each column at W = 0, relative to the others
        self._at_zero = True  # until W leaves it
        self.b: FloatArray = np.zeros(centre.y.size)
        self.b_at_zero: FloatArray | None = self.b  # of W = 0
        self.before = np.nan  # F before b was last settled
        self.objective = self.inner = 0.0  # F and ⟨W, ∇F⟩ at the present W and b

    def memory(self) -> Memory:
        numbers = (self.objective, self.inner, self._weight)
        changes = self._memory.memory()
        vectors = {"b": self.b, "b_at_zero": self.b_at_zero, "gradient": self._gradient}
        vectors |= {"curvature": self._curvature}
        return vectors | {"numbers": numbers, "changes": changes}

    def restore(self, memory: Memory) -> None:
        self.b, self._gradient = memory["b"], memory["gradient"]
        self.b_at_zero, self._curvature = memory["b_at_zero"], memory["curvature"]
        self._at_zero = False
        self.objective, self.inner, self._weight = memory["numbers"]
        self._memory.restore(memory["changes"])

    def rise_allowed(self) -> float:
        """⟨b - b₀, ∂F/∂b⟩, at the most: F(W, b) - F(0, b₀) is at most this and ⟨W, ∇F⟩ together.

        It vanishes only where b is the very best.
        """
        # Of rows far from zero float32 keeps so few digits that nothing is known.
        if self.b_at_zero is None or self._precision > _FEW_DIGITS:
            return np.inf
        # Scores are added to b in the precision of the data, which moves each row's by ε‖b‖; and
        # Σ ‖r_i‖ ≤ √(2·smoothness·F·weight) for the residuals r_i of a loss that is not negative.
        size = float(np.linalg.norm(self.b) + np.linalg.norm(self.b_at_zero))
        residuals = np.sqrt(2.0 * self._smoothness * self._weight * abs(self.objective))
        moved = float((self.b - self.b_at_zero) @ self._gradient)
        return float(moved + self._precision * size * residuals)

    def leave_zero(self) -> None:
        """Remember what is known of b where W = 0."""
        self.b_at_zero, self._at_zero = self.b, False

    def settle(self) -> None:
        """Move b to its best for the W where the shards' states are."""
        self._evaluate()
        self.before = self.objective
        enough = max(_SHARE_OF_ROUNDING * self._precision, _SHARE_OF_OBJECTIVE)
        for _ in range(_STEPS):
            direction = self._direction()
            slope = float(direction @ self._gradient)
            if -slope <= enough * abs(self.objective):
                return
            if not self._step(direction, slope):
                if not self._memory.pairs:
                    return
                self._memory = LBFGS()  # what it knew was of another place

    def _direction(self) -> FloatArray:
        """That of L-BFGS, without what F does not feel, where its steps go anywhere; or -∇F."""
        g = self._gradient
        direction = self._memory.direction(g, lambda q: q / self._curvature)
        if direction is not None:
            felt = np.abs(g) > _NOTHING * self._weight
            direction = np.where(felt, direction, 0.0)
            rounding = max(_BALANCED * np.abs(g).sum(), self._precision * self._weight)
            if felt.any() and abs(g.sum()) <= rounding:
                direction[felt] -= direction[felt].mean()
            if float(direction @ g) < 0.0:
                return direction
        return g / -(self._smoothness * self._weight or 1.0)

    def _step(self, direction: FloatArray, slope: float) -> bool:
        """To b + t·direction with a t that keeps the rules, by bisection; False if none does."""
        # The slopes decide where they can, since large scores make F's rounding error large: F is
        # convex, so it has fallen wherever its slope is still negative.
        b, before, gradient = self.b, self.objective, self._gradient
        rounding = self._precision * abs(before)
        least, most, t = 0.0, np.inf, 1.0
        for _ in range(_TRIES):
            self._go_to(b + t * direction)
            left, rise = float(direction @ self._gradient), self.objective - before
            beyond = left > 0.0 and rise > _ENOUGH * t * slope
            if left < _LEFT * slope and rise < rounding / -32.0:  # else its slope is noise
                least = t
            elif beyond and (rise > rounding or left > -_LITTLE * slope):
                most = t
            else:
                self._memory.remember(t * direction, self._gradient - gradient)
                return True
            t = 2.0 * t if most == np.inf else 0.5 * (least + most)
        if self.objective > before:
            self._go_to(b)
        return False

    def _go_to(self, b: FloatArray) -> None:
        self._workers.apply("shift", b)
        self.b = b
        self._evaluate()

    def _evaluate(self) -> None:
        reply = require_finite(self._workers.sum("balance"), "the objective or its gradient")
        self.objective, self.inner, self._weight = (float(number) for number in reply[:3])
        self._gradient, curvature = np.split(reply[3:], 2)
        if self._at_zero:
            # F is flat along the columns of rare classes, by orders of magnitude. Elsewhere it may
            # also be flat because the rows are fitted all but exactly, in every direction.
            self._curvature = np.maximum(curvature, _FLATTEST * curvature.max() or 1.0)
