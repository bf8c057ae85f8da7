"""Check a task on a few rows: its methods against finite differences, and against each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np
from numba import cloudpickle

from dfwtrace._typing import Array, Data, Matrix
from dfwtrace.data.shards import Shard
from dfwtrace.linalg.lowrank import LowRankMatrix, RankOne
from dfwtrace.tasks.check_loss import check_loss
from dfwtrace.tasks.differences import (
    CLOSE,
    ROUGHLY,
    among,
    close,
    derivative,
    forward_derivative,
    natural_scale,
    norm,
    second_derivatives,
)
from dfwtrace.tasks.features.scores import ScoresTask, as_task
from dfwtrace.tasks.program import ShardProgram, ShardState
from dfwtrace.tasks.task import Task, dense_gradient
from dfwtrace.validation import check_features, check_targets

_ROWS, _GAMMAS = 50, (0.0, 0.3, 1.0)


def check_task(task: object, X: Data, y: Data = None) -> list[str]:
    """Compare the methods of a task with finite differences and with each other.

    A custom task or loss that passes is consistent: its gradient is that of its loss, its products
    are those of its gradient, `update` and `linesearch` follow F, and F is convex and a sum over
    rows. At most 50 rows are used, in float64.

    Parameters
    ----------
    task : Task, ScoresTask, or any object with the methods of a task
        What is checked; of a `ScoresTask`, its loss first.
    X : array or sparse matrix of shape (n, d)
        Features, as for `solve`.
    y : array, optional
        Targets, as for `solve`.

    Returns
    -------
    list of str
        The methods that were checked. The task need not have those that are missing.

    Raises
    ------
    ValueError
        If a method is wrong; the message names it.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> X, Y, _ = dt.datasets.make_multitask(n=200, d=10, m=8, rank=2, random_state=0)
    >>> class Halved(dt.losses.SquaredLoss):
    ...     kernel = None
    ...     def evaluate(self, S, y, R):
    ...         R[:] = 0.5 * (S - y)
    ...         return 0.5 * ((S - y) ** 2).sum()
    >>> dt.check_task(dt.ScoresTask(Halved()), X, Y)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: Halved.evaluate is wrong: ...
    """
    objective = as_task(task)
    X = check_features(X)
    X, y = _few_rows(X, check_targets(y, X.shape[0]))
    with np.errstate(all="ignore"):  # points where F overflows are left out
        X, y, shape = objective.examine(X, y)
        shard = Shard(0, X, y)
        if isinstance(objective, ScoresTask):
            checked = check_loss(objective.loss, shard.targets, shape[1])
            for name in objective.representations:
                _TaskCheck(objective.represent(name), shard, shape).run()
        else:
            checked = _TaskCheck(objective, shard, shape).run()
        _check_pickle(objective)
    return checked


def _few_rows(X: Matrix, y: Array | None) -> tuple[Matrix, Array | None]:
    """Rows from all of the data, of as many classes as there is room for."""
    n = X.shape[0]
    order = np.arange(n) if y is None or y.ndim > 1 else np.argsort(y, kind="stable")
    rows = np.unique(order[np.linspace(0, n - 1, min(n, _ROWS)).astype(int)])
    parts = (part if part is None else part[rows] for part in (X, y))
    X, y = (
        part.astype(np.float64) if part is not None and part.dtype.kind == "f" else part
        for part in parts
    )
    return X, y


def _check_pickle(task: Any) -> None:
    # By value, as Spark sends it: a class may have been made in a notebook.
    try:
        cloudpickle.loads(cloudpickle.dumps(task))
    except Exception as error:
        name = type(getattr(task, "identity", task)).__name__
        raise ValueError(f"{name} cannot be pickled, as clusters need: {error}") from error


class _TaskCheck:
    """The methods of a task on one shard, near several W."""

    def __init__(self, task: Task[Any], shard: Shard, shape: tuple[int, int]) -> None:
        self.task, self.shard, self.shape = task, shard, shape
        self.program = ShardProgram(task, shape)
        self.name, self.rng = self.program.name, np.random.default_rng(0)
        self.zero = LowRankMatrix.zeros(shape)
        state = self.at(self.zero).state
        # The forms in which the task gives its gradient.
        self.forms = [name for name in ("gradient", "matvec", "rmatvec") if task.supports(name)]
        if dense_gradient(state) is not None and "gradient" not in self.forms:
            self.forms.insert(0, "grad")
        if not self.forms:
            task.gradient(state)  # says what is missing
        optional = (
            "loss",
            "inner",
            "linesearch",
            "curvature_product",
            "tangent",
            "renew",
            "expect",
        )
        self.own = [name for name in optional if task.supports(name)]
        self.has_loss = "loss" in self.own

    def run(self) -> list[str]:
        """Check everything; return the names of the methods."""
        self.check_finite()
        self.radius = self.scale()
        places = [self.zero, self.random(0.5), self.random(1.0)]
        self.check_factors(places[1])
        for W in places:
            self.check_blocks(W)
            self.check_rates(W, self.atom(W))
        for W in places:
            atom = self.atom(W)
            self.check_update(W, atom)
            for name, check in (
                ("inner", self.check_inner),
                ("linesearch", self.check_linesearch),
                ("curvature_product", self.check_curvature_product),
                ("tangent", self.check_tangent),
                ("renew", self.check_renew),
                ("expect", self.check_expect),
            ):
                if name in self.own:
                    check(W, atom)
        self.check_sum(places[1])
        self.check_convex(places)
        names = [*self.forms, *self.own]
        return [f"{self.name}.{name}" for name in ("stats", "update", *names) if name != "grad"]

    def wrong(self, method: str, why: str) -> NoReturn:
        where = f"grad in {self.name}'s state" if method == "grad" else f"{self.name}.{method}"
        raise ValueError(f"{where} is wrong: {why}.")

    # Points, and F there

    def at(self, W: LowRankMatrix, shard: Shard | None = None) -> ShardState:
        return self.program.stats(self.shard if shard is None else shard, W.U, W.s, W.V)

    def value(self, held: ShardState) -> float:
        return float(self.program.report(held)[0])

    def random(self, share: float) -> LowRankMatrix:
        """A matrix of rank 2, or 1 where there is no other, with that share of the radius."""
        rank = min(2, *self.shape)
        U, V = (np.linalg.qr(self.rng.standard_normal((size, rank)))[0] for size in self.shape)
        s = np.array([0.7, 0.3])[:rank]
        return LowRankMatrix(U, share * self.radius * s / s.sum(), V)

    def atom(self, W: LowRankMatrix) -> RankOne:
        """One with v along ∇Fᵀu: F changes more along it than along most."""
        u, v = (self.rng.standard_normal(size) for size in self.shape)
        found = self.program.rmatvec(self.at(W), u)
        v = found if norm(found) > 0.0 and np.isfinite(found).all() else v
        return RankOne(-self.radius, u / norm(u), v / norm(v))

    def product(self, held: ShardState, form: str, left: Array, right: Array) -> float:
        """⟨left·rightᵀ, ∇F⟩ through one form of the gradient."""
        if form == "matvec":
            return float(np.vdot(left, self.program.matvec(held, right)))
        if form == "rmatvec":
            return float(np.vdot(right, self.program.rmatvec(held, left)))
        return float(np.vdot(left, self.program.gradient(held) @ right))

    def slope(self, W: LowRankMatrix, direction: tuple[Array, Array]) -> float:
        """F's slope at W along a direction, by the gradient."""
        return self.product(self.at(W), self.forms[0], *direction)

    def size(self, held: ShardState, direction: tuple[Array, Array]) -> float:
        """What rounding errors of F and of its slope along a direction are relative to."""
        left, right = direction
        value = abs(self.value(held)) if self.has_loss else 0.0
        return value + float(np.vdot(np.abs(left), np.abs(self.program.matvec(held, right))))

    def scale(self) -> float:
        """How long a W is for which F differs much from F(0), whatever the units of the data."""
        u, v = (self.rng.standard_normal(size) for size in self.shape)
        u, v = u / norm(u), v / norm(v)

        def at(t: float) -> ShardState:
            return self.at(LowRankMatrix(t * u[:, None], [1.0], v[:, None]))

        if self.has_loss:
            here = self.value(self.at(self.zero))
            return natural_scale(lambda t: [self.value(at(t)), self.value(at(-t))], here)
        slope = self.program.matvec(self.at(self.zero), v)
        return natural_scale(
            lambda t: [norm(self.program.matvec(at(t), v) - slope)] * 2, 0.0, norm(slope)
        )

    # Checks

    def check_finite(self) -> None:
        held = self.at(self.zero)
        if self.has_loss and not np.isfinite(self.value(held)):
            self.wrong("loss", f"it is {self.value(held)} at W = 0")
        if not np.isfinite(self.program.matvec(held, np.ones(self.shape[1]))).all():
            self.wrong(self.forms[0], "it is not finite at W = 0")

    def check_factors(self, W: LowRankMatrix) -> None:
        """The state depends on W alone, whatever its factors are, and does depend on it."""
        other = LowRankMatrix(np.hstack([3.0 * W.U, W.U]), np.tile(W.s, 2) / 4.0, np.tile(W.V, 2))
        if self.differ(self.at(W), self.at(other)):
            self.wrong("stats", "for the same W in other factors U diag(s) Vᵀ it gives another F")
        if not self.differ(self.at(W), self.at(self.zero)):
            self.wrong("stats", "F and its gradient are the same for W as for zero")

    def check_blocks(self, W: LowRankMatrix) -> None:
        """A product with a block is that with each of its columns."""
        held = self.at(W)
        for form, size in (("matvec", self.shape[1]), ("rmatvec", self.shape[0])):
            if form in self.forms:
                method = getattr(self.program, form)
                block = self.rng.standard_normal((size, 3))
                columns = np.column_stack([method(held, column) for column in block.T])
                if not close(method(held, block), columns, norm(columns)):
                    self.wrong(form, "with a block it is not what it is with the block's columns")

    def check_rates(self, W: LowRankMatrix, atom: RankOne) -> None:
        """All that says how fast F changes on the way from W to an atom says the same."""
        held, D = self.at(W), _direction(W, atom)
        size = self.size(held, D)
        rates = {form: self.product(held, form, *D) for form in self.forms}
        if "linesearch" in self.own:
            rates["linesearch"] = self.linesearch(W, atom, 0.0)[0]
        size += max(abs(rate) for rate in rates.values())
        if not self.has_loss:
            by_stats = by_update = next(iter(rates.values()))
            given = "another form of the gradient gives"
        else:
            by_stats = derivative(lambda g: self.value(self.at(_moved(W, atom, g))))
            by_update = forward_derivative(lambda g: self.value(self.updated(W, atom, g)))
            given = "finite differences of the loss give"
        known = list(rates.values())
        if not close(by_stats, by_update, size):
            method, rate, other = "update", by_update, by_stats
            if _votes(by_update, known, size) > _votes(by_stats, known, size):
                method, rate, other = "stats", by_stats, by_update
            self.wrong(
                method, f"by it F changes at a rate of {rate:.6g} on the way to an atom, but by "
                f"{'stats' if method == 'update' else 'update'} at one of {other:.6g}"
            )  # fmt: skip
        off = [name for name, rate in rates.items() if not close(rate, by_stats, size)]
        if not off:
            return
        alike = len(off) == len(rates) and _votes(rates[off[0]], known, size) == len(known)
        if alike and len(known) > 1 and "linesearch" in rates and not self.is_antitone(W, D):
            self.wrong(
                "loss", f"it changes at a rate of {by_stats:.6g} on the way to an atom, but the "
                f"gradient and linesearch agree on {rates[off[0]]:.6g}"
            )  # fmt: skip
        unsure = alike and self.has_loss and "linesearch" not in rates
        hint = f" (or {self.name}.loss is wrong)" if unsure else ""
        self.wrong(
            off[0], f"it gives F a slope of {rates[off[0]]:.6g} on the way to an atom, but {given} "
            f"{by_stats:.6g}{hint}"
        )  # fmt: skip

    def is_antitone(self, W: LowRankMatrix, D: tuple[Array, Array]) -> bool:
        """Whether the gradient falls along D: then it is wrong, and not a loss that is convex."""
        ends = [self.at(_shifted(W, D, h)) for h in (-0.5, 0.5)]
        before, after = (self.product(end, self.forms[0], *D) for end in ends)
        middle = self.value(self.at(W))
        convex = sum(self.value(end) for end in ends) >= 2.0 * middle
        return after < before and convex

    def check_update(self, W: LowRankMatrix, atom: RankOne) -> None:
        for gamma in _GAMMAS:
            difference = self.differ(self.updated(W, atom, gamma), self.at(W.toward(atom, gamma)))
            if difference:
                self.wrong("update", f"after a step of γ = {gamma:g}, {difference} as by stats")
        twice = self.updated(W, atom, 0.3)
        other = self.random(1.0)
        second = RankOne(self.radius, other.U[:, 0], other.V[:, 0])
        twice = self.program.update(twice, second.scale, second.u, second.v, 0.4)
        difference = self.differ(twice, self.at(W.toward(atom, 0.3).toward(second, 0.4)))
        if difference:
            self.wrong("update", f"after two steps, {difference} as by stats")

    def check_inner(self, W: LowRankMatrix, atom: RankOne) -> None:
        held, D = self.at(W), (W.U * W.s, W.V)
        given, found = float(self.program.report(held)[1]), self.product(held, self.forms[0], *D)
        if not np.isnan(given) and not close(given, found, self.size(held, D)):
            self.wrong("inner", f"it is {given:.6g}, but ⟨W, ∇F(W)⟩ is {found:.6g}")

    def check_linesearch(self, W: LowRankMatrix, atom: RankOne) -> None:
        D = _direction(W, atom)
        for gamma in _GAMMAS:
            given = self.linesearch(W, atom, gamma)[0]
            moved = W.toward(atom, gamma)
            found = self.slope(moved, D)
            if not close(given, found, self.size(self.at(moved), D)):
                self.wrong(
                    "linesearch", f"its first derivative at γ = {gamma:g} is {given:.6g}, but F "
                    f"changes at a rate of {found:.6g}"
                )  # fmt: skip
        least = CLOSE * self.size(self.at(W), D)
        tried = [
            (gamma, self.linesearch(W, atom, gamma)[1], self.second_derivatives(W, atom, gamma))
            for gamma in (0.3, 0.55, 0.8)
        ]
        if not any(among(given, found, least) for _, given, found in tried):
            gamma, given, found = tried[0][0], tried[0][1], tried[0][2][0]
            self.wrong(
                "linesearch", f"its second derivative at γ = {gamma:g} is {given:.6g}, but finite "
                f"differences of the gradient give {found:.6g}"
            )  # fmt: skip
        given = tried[0][1]
        ends = [self.linesearch(W, atom, gamma)[0] for gamma in (0.0, 1.0)]
        size = self.size(self.at(W), D) + abs(given)
        if self.task.quadratic and not close(ends[1] - ends[0], given, size):
            self.wrong("quadratic", "it is True, but F is not quadratic")

    def check_curvature_product(self, W: LowRankMatrix, atom: RankOne) -> None:
        held, H = self.at(W), self.program.curvature_product
        block = self.rng.standard_normal((self.shape[0], 3))
        images = H(held, block)
        if not close(images[:, 0], H(held, block[:, 0]), norm(images)):
            self.wrong("curvature_product", "with a block it is not what it is with its columns")
        crossed = block.T @ images
        if not close(crossed, crossed.T, norm(block) * norm(images)):
            self.wrong("curvature_product", "it is not symmetric: ⟨a, Hb⟩ differs from ⟨b, Ha⟩")
        for D in (_direction(W, atom), *self.directions()):
            left, right = D
            bound = float(np.sum((left.T @ H(held, left)) * (right.T @ right)))
            ahead, behind = (self.slope(_shifted(W, D, h), D) for h in (1e-3, -1e-3))
            found = (ahead - behind) / 2e-3
            if found > bound + ROUGHLY * abs(found) + CLOSE * self.size(held, D):
                self.wrong(
                    "curvature_product", f"along some D the second derivative of F is {found:.6g}, "
                    f"which tr(DᵀHD) = {bound:.6g} must not be below"
                )  # fmt: skip

    def check_tangent(self, W: LowRankMatrix, atom: RankOne) -> None:
        held = self.at(W)
        if not W.rank or self.task.tangent(held.state) is None:
            return
        right, left = self.program.matvec(held, W.V), self.program.rmatvec(held, W.U)
        inner = float(np.vdot(W.U * W.s, right))
        size = self.size(held, (W.U * W.s, W.V)) + abs(inner)
        ends = np.cumsum([2, right.size, left.size])
        (value, slope), products, transposed, _ = np.split(self.program.tangent(held), ends)
        for name, part, expected, least in (
            ("F", value, self.value(held), size),
            ("⟨W, ∇F⟩", slope, inner, size),
            ("∇F V", products, right.ravel(), norm(right)),
            ("∇Fᵀ U", transposed, left.ravel(), norm(left)),
        ):
            if not close(part, expected, least):
                self.wrong("tangent", f"its {name} is not that of the single methods")

    def check_renew(self, W: LowRankMatrix, atom: RankOne) -> None:
        old = self.updated(self.random(1.0), atom, 0.5)
        new = self.program.stats(self.shard, W.U, W.s, W.V, old=old)
        difference = self.differ(new, self.at(W))
        if difference:
            self.wrong("renew", f"{difference} as by stats")

    def check_expect(self, W: LowRankMatrix, atom: RankOne) -> None:
        v = self.rng.standard_normal(self.shape[1])
        held = self.at(W)
        held = held._replace(state=self.task.expect(held.state, v))
        moved = self.program.update(held, atom.scale, atom.u, atom.v, 0.3)
        expected = self.program.matvec(self.at(W.toward(atom, 0.3)), v)
        if not close(self.program.matvec(moved, v), expected, norm(expected)):
            self.wrong("expect", "the product that it announces is another one after the update")

    def check_sum(self, W: LowRankMatrix) -> None:
        """F of all rows is the sum over two halves."""
        X, y = self.shard.X, self.shard.y
        half = self.shard.n_rows // 2
        if not half:
            return
        halves = [
            self.at(W, Shard(0, X[rows], None if y is None else y[rows]))
            for rows in (slice(half), slice(half, None))
        ]
        whole = self.at(W)
        if self.has_loss:
            F, *parts = (self.value(held) for held in (whole, *halves))
            if not close(F, sum(parts), abs(F)):
                self.wrong(
                    "loss", f"it must be a sum over rows, but is {F:.6g} for {self.shard.n_rows} "
                    f"rows and {parts[0]:.6g} and {parts[1]:.6g} for their halves"
                )  # fmt: skip
        G, *others = (self.program.matvec(held, W.V) for held in (whole, *halves))
        if not close(G, others[0] + others[1], norm(G)):
            self.wrong(self.forms[0], "it must be a sum over rows, but is not that of two halves")

    def check_convex(self, places: list[LowRankMatrix]) -> None:
        ends = [*places, self.random(1.0), self.random(0.3)]
        for a, b in ((a, b) for k, a in enumerate(ends) for b in ends[:k]):
            D = np.hstack([b.U * b.s, -a.U * a.s]), np.hstack([b.V, a.V])
            first, last = (self.slope(W, D) for W in (a, b))
            size = self.size(self.at(a), D) + self.size(self.at(b), D)
            if last - first < -CLOSE * size:
                raise ValueError(
                    f"{self.name} is not convex: between two points the slope of F falls from "
                    f"{first:.6g} to {last:.6g}, so no certificate of it holds."
                )

    # Helpers

    def updated(self, W: LowRankMatrix, atom: RankOne, gamma: float) -> ShardState:
        return self.program.update(self.at(W), atom.scale, atom.u, atom.v, gamma)

    def linesearch(self, W: LowRankMatrix, atom: RankOne, gamma: float) -> tuple[float, float]:
        first, second = self.program.linesearch(self.at(W), atom.scale, atom.u, atom.v, gamma)
        return float(first), float(second)

    def second_derivatives(self, W: LowRankMatrix, atom: RankOne, gamma: float) -> list[float]:
        """Of F on the way to an atom, by differences of its slope over several steps."""
        D = _direction(W, atom)
        return second_derivatives(lambda g: self.slope(_moved(W, atom, gamma + g), D))

    def directions(self) -> Iterator[tuple[Array, Array]]:
        """Random ones that change a column of the scores, or move weight from one to another."""
        for _ in range(4):
            u = self.rng.standard_normal((self.shape[0], 1))
            v = np.zeros((self.shape[1], 1))
            v[self.rng.integers(0, self.shape[1])] += 1.0
            v[self.rng.integers(0, self.shape[1])] -= 1.0
            if v.any():
                yield self.radius * u / norm(u), v / norm(v)

    def differ(self, one: ShardState, other: ShardState) -> str:
        """What is not the same in two states, in words; nothing if they are the same."""
        V = self.rng.standard_normal((self.shape[1], 2))
        products, expected = self.program.matvec(one, V), self.program.matvec(other, V)
        (value, inner), (expected_value, expected_inner) = map(self.program.report, (one, other))
        size = self.radius * norm(expected)
        if self.has_loss and not close(value, expected_value, abs(expected_value) + size):
            return f"F is {value:.6g}, not {expected_value:.6g}"
        if not close(products, expected, norm(expected) or 1.0):
            return "the gradient is not the same"
        known = not np.isnan([inner, expected_inner]).any()
        if known and not close(inner, expected_inner, abs(expected_inner) + size):
            return f"inner is {inner:.6g}, not {expected_inner:.6g}"
        return ""


def _direction(W: LowRankMatrix, atom: RankOne) -> tuple[Array, Array]:
    """Factors of atom - W."""
    left = np.column_stack([atom.scale * atom.u, -W.U * W.s])
    return left, np.column_stack([atom.v, W.V])


def _moved(W: LowRankMatrix, atom: RankOne, gamma: float) -> LowRankMatrix:
    """(1-γ) W + γ atom, also for γ below 0 or above 1."""
    return _shifted(W, _direction(W, atom), gamma)


def _shifted(W: LowRankMatrix, D: tuple[Array, Array], h: float) -> LowRankMatrix:
    """W + h D."""
    left, right = np.hstack([W.U * W.s, h * D[0]]), np.hstack([W.V, D[1]])
    return LowRankMatrix(left, np.ones(left.shape[1]), right)


def _votes(value: float, others: list[float], size: float) -> int:
    return sum(close(value, other, size) for other in others)
