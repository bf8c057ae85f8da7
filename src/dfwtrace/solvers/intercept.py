"""An intercept that no constraint holds back: for every W the best b of the scores XW + 1bᵀ.

The solvers then minimise F̃(W) = min_b F(W, b), which is convex too, and whose gradient is that of F
in W at the best b. Between epochs a b close to it will do (`settle`): that takes rounds with m
numbers, and few of them, as b was the best one for a W nearby, and L-BFGS remembers the curvature.
For a certificate b is settled as exactly as float64 allows, and what is left is bounded: `certify`.
"""

from __future__ import annotations

import numpy as np

from dfwtrace._typing import FloatArray, Memory
from dfwtrace.engines import Workers
from dfwtrace.losses import Correction, Loss
from dfwtrace.solvers.lbfgs import LBFGS
from dfwtrace.tasks.task import Centre, Columns
from dfwtrace.validation import require_finite

_STEPS, _TRIES = 200, 60  # steps for one W at the most, and tries for one step
# Evaluations for one W at the most where Newton's method can take over, or digits are few.
_EVALUATIONS = 14
# Steps of Newton's method at the most. It ends where b is as good as exact: the decrement is below
# the first share of F, or rounding hides whether it falls to less than the second of what it was.
_NEWTON_STEPS, _EXACT, _FALLS = 40, 1e-28, 0.25
# A step must leave at most the first share of its slope (Wolfe's rule): F may be almost linear in
# b, and its curvature is seen only where its slope changes. One beyond the lowest F must lower F by
# the second share of what the slope promised (Armijo's rule), or, where rounding hides whether it
# did, leave at most the third of the slope.
_LEFT, _ENOUGH, _LITTLE = 0.9, 1e-4, 0.5
# b is good enough when another step would lower F by less than this share of its rounding error,
# or of F itself: a certified gap of 1e-8·F is then off by a thousandth of it at the most.
_SHARE_OF_ROUNDING, _SHARE_OF_OBJECTIVE = 1e-3, 1e-14
# A class that no row has wants its b at -∞, where F is flat and a step by the curvature goes
# anywhere: b stays where it would change F by less than this share of it.
_NOTHING = 1e-13
_FEW_DIGITS = 1e-9  # the precision of float32 is above this one
_FLATTEST = 1e-6  # smallest ratio of the columns' curvatures that L-BFGS begins with
# A gradient whose sum is below this share of its size, or rounding, has none along (1, …, 1): F
# does not feel it.
_BALANCED = 1e-9


class Intercept:
    """The present b, and the rounds that keep it at its best."""

    def __init__(self, workers: Workers, centre: Centre, loss: Loss, rounding: float) -> None:
        self._workers, self._loss, self._precision = workers, loss, rounding
        self._smoothness = loss.smoothness  # gives the first step's length
        self.centre = centre.x  # the mean of the rows, which X is centred at: b hardly moves with W
        self._memory = LBFGS()
        self._gradient, self._weight = np.zeros(centre.y.size), 0.0
        self._curvature = np.ones(centre.y.size)  # of each column
        self._at_start = np.ones(centre.y.size)  # the same at W = 0, relative to the others
        self._left = 0  # evaluations
        self._at_zero = True  # until W leaves it
        self.b: FloatArray = np.zeros(centre.y.size)
        self.b_at_zero: FloatArray | None = self.b  # of W = 0
        self.before = np.nan  # F before b was last settled
        self.objective = self.inner = 0.0  # F and ⟨W, ∇F⟩ at the present W and b

    def memory(self) -> Memory:
        numbers = (self.objective, self.inner, self._weight)
        changes = self._memory.memory()
        vectors = {"b": self.b, "b_at_zero": self.b_at_zero, "gradient": self._gradient}
        vectors |= {"curvature": self._curvature, "at_start": self._at_start}
        return vectors | {"numbers": numbers, "changes": changes}

    def restore(self, memory: Memory) -> None:
        self.b, self._gradient = memory["b"], memory["gradient"]
        self.b_at_zero, self._at_start = memory["b_at_zero"], memory["at_start"]
        self._curvature = memory["curvature"]
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

    def seen_at(self, objective: float, inner: float, columns: Columns) -> None:
        """Take what an evaluation at the present W and b has found."""
        self.objective, self.inner, self._weight = objective, inner, columns.weight
        self._gradient, self._curvature = columns.slope, columns.curvature

    def certify(self, radius: float, *scale: FloatArray) -> float:
        """Settle b as exactly as can be; return what is left of F(W, b) - F* beside W's own gap.

        For any R' = R + Δ that the conjugate losses allow and whose rows add up to 0, duality gives
        F(W, b) - F* ≤ ⟨XW, R'⟩ + μσ₁(XᵀR') + Σ D_i, where D_i is the Bregman divergence of ℓ* from
        R_i to R'_i. With σ₁(XᵀR') ≤ σ₁(XᵀR) + Σ‖x_i‖‖Δ_i‖ that is W's gap and what is returned.
        """
        if not self._loss.balances:
            self.settle()
            # An estimate: what a Newton step with the diagonal of the Hessian would gain.
            curvature = np.maximum(self._curvature, _FLATTEST * self._curvature.max() or 1.0)
            return 0.5 * float(self._gradient @ (self._gradient / curvature))
        found = self._newton()
        if found.decrement > self._enough:  # probabilities are 0 or 1, say: F is all but linear
            self._descend(_STEPS)
            found = self._newton()
        change = found.change
        costs = self._workers.sum("excess", self.b, change, *scale)
        divergence, inner, lengths = (float(x) for x in require_finite(costs, "the duality gap"))
        return divergence + inner + radius * lengths

    def settle(self) -> None:
        """Move b to its best, about, for the W where the shards' states are."""
        self._evaluate()
        self.before = self.objective
        if self._at_zero and self._loss.balances:  # all that follows starts from this b
            if float(self._gradient @ (self._gradient / self._at_start)) > self._enough:
                self._newton()
        elif self._loss.quadratic:  # the first step of -∇F is Newton's
            gain = float(self._gradient @ self._gradient) / (self._weight or 1.0)
            # Of b itself shards keep what the precision of the data, an eighth of ours, allows.
            hidden = self._weight * float(self.b @ self.b) * (self._precision / 8.0) ** 2
            if gain > self._enough + hidden:
                self._go_to(self.b - self._gradient / self._weight)
        elif self._loss.balances:
            settled = self._descend(_EVALUATIONS) or self._newton().decrement <= self._enough
            if not settled:
                self._descend(_STEPS)
        else:
            self._descend(_STEPS if self._precision < _FEW_DIGITS else _EVALUATIONS)

    def _newton(self) -> Correction:
        """By Newton's method, from sums in float64 whatever the data are in; what is left to do."""
        kept: tuple[FloatArray, Correction] | None = None
        b, turn = self.b, 0
        while True:
            sums = self._workers.sum("imbalance", b)
            found = self._loss.correction(require_finite(sums, "the gradient in b"), b.size)
            if kept is not None and kept[1].near:
                if found.decrement > kept[1].decrement:
                    b, found = kept
                    break
                if found.decrement > _FALLS * kept[1].decrement:
                    break
            if found.decrement <= _EXACT * abs(self.objective):
                break
            if turn >= _NEWTON_STEPS * (1 + found.near):  # what is near is not left half-way
                break
            kept = b, found
            b, turn = b + found.steps[turn % len(found.steps)], turn + 1
        if turn:
            self._go_to(b)
        else:
            self._evaluate()
        return found

    @property
    def _enough(self) -> float:
        """b is good enough when another step would lower F by less than this."""
        return max(_SHARE_OF_ROUNDING * self._precision, _SHARE_OF_OBJECTIVE) * abs(self.objective)

    def _descend(self, evaluations: int) -> bool:
        """Settle b by L-BFGS; False if that takes too long."""
        self._left = evaluations
        for _ in range(_STEPS):
            direction = self._direction()
            slope = float(direction @ self._gradient)
            if -slope <= self._enough:
                return True
            if self._left <= 0:
                return False
            if not self._step(direction, slope):
                if not self._memory.pairs:
                    return False
                self._memory = LBFGS()  # what it knew was of another place
        return False

    def _direction(self) -> FloatArray:
        """That of L-BFGS, without what F does not feel, where its steps go anywhere; or -∇F."""
        g = self._gradient
        direction = self._memory.direction(g, lambda q: q / self._at_start)
        if direction is not None:
            felt = np.abs(g) > _NOTHING * abs(self.objective)
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
            if self._left <= 0:
                break
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
        self._gradient, self._curvature = np.split(reply[3:], 2)
        self._left -= 1
        if self._at_zero:
            # F is flat along the columns of rare classes, by orders of magnitude. Elsewhere it may
            # also be flat because the rows are fitted all but exactly, in every direction.
            most = self._curvature.max()
            self._at_start = np.maximum(self._curvature, _FLATTEST * most or 1.0)
