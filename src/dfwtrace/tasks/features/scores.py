"""Tasks made of a loss on the scores XW, and the representations that they can take."""

from __future__ import annotations

from contextlib import suppress
from copy import copy
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from dfwtrace._typing import Array, Matrix
from dfwtrace.data.shards import Examined
from dfwtrace.losses import Loss, MultinomialLoss, SquaredLoss
from dfwtrace.tasks.features.gram import GramTask
from dfwtrace.tasks.features.implicit import DenseTask, FactoredTask, ImplicitTask
from dfwtrace.tasks.planning import Plan, Workload, choose
from dfwtrace.tasks.task import Representation, Task, own_targets
from dfwtrace.validation import as_floating, check_count, describe

_FORMS: dict[str, type[Representation[Any]]]
_FORMS = {"gram": GramTask, "implicit": ImplicitTask, "dense": DenseTask, "factored": FactoredTask}


class ScoresTask:
    """F(W) = Σ_i ℓ(x_iᵀW, y_i) for any loss ℓ on a row of scores.

    Parameters
    ----------
    loss : Loss
        See `dfwtrace.losses.Loss` for the two or three methods that a custom loss needs.

    Attributes
    ----------
    representations : tuple of str
        Names of the forms that a shard can keep; see `dfwtrace.plan`.
    """

    log_factor: float = 1.0  # as a task's
    representations: tuple[str, ...] = ("implicit", "dense", "factored")

    def __init__(self, loss: Loss) -> None:
        if not isinstance(loss, Loss):
            raise TypeError(f"loss must be a Loss such as SquaredLoss(), got {describe(loss)}.")
        if not hasattr(loss, "smoothness"):
            raise TypeError(
                f"{type(loss).__name__}.smoothness is missing: it is the largest eigenvalue of the "
                "Hessian of ℓ in one row's scores."
            )
        self.loss = loss
        self.weighted = False

    @property
    def name(self) -> str:
        """Name of the loss."""
        return self.loss.name

    def with_weights(self) -> ScoresTask:
        """Return the same task where the first column of y is the weight of each row."""
        other = copy(self)
        other.weighted = True
        return other

    def examine(self, X: Matrix, y: Array | None) -> Examined:
        """Check rows and find the shape of W; on a cluster, some rows at a time."""
        if y is None:
            raise ValueError("y is missing: this task needs targets.")
        X, own = as_floating(X), own_targets(y) if self.weighted else y
        if self.weighted and y[:, 0].min() < 0.0:
            raise ValueError(f"sample_weight must not be negative, got {y[:, 0].min():g}.")
        targets, width = self._checked_targets(own)
        self.loss.check_evaluate(targets, width)
        # Targets stay with their weights until a shard parts them.
        return Examined(X, y if self.weighted else targets, (int(X.shape[1]), width))

    def _checked_targets(self, y: Array) -> tuple[Array, int]:
        found: Any = self.loss.check_targets(y)
        try:
            targets, width = found
            if isinstance(targets, np.ndarray) and len(targets) == len(y):
                return targets, check_count("width", width, 1)
        except (TypeError, ValueError):
            pass
        raise TypeError(
            f"{type(self.loss).__name__}.check_targets must return the targets as an array of "
            f"{len(y)} rows and the number m of scores, got {describe(found)}."
        )

    def represent(self, name: str) -> Representation[Any]:
        """Return the task in one of its `representations`."""
        return _FORMS[name](self.loss, self.weighted)

    def plan(
        self, workload: Workload, asked: str, free_memory: float | None, intercept: bool
    ) -> tuple[Task[Any], Plan]:
        """Choose the form that shards hold; return it and why it was chosen."""
        alone = intercept and workload.local  # every shard is centred by itself
        forms = [n for n in self.representations if not alone or _FORMS[n].centres_shards]
        if not isinstance(asked, str) or asked not in ("auto", *forms):
            raise ValueError(
                f"representation must be one of {', '.join(forms)} or auto for this run of "
                f"{self.name}, got {describe(asked)}."
            )
        of_task = {"quadratic": self.loss.quadratic, "weighted": self.weighted}
        workload = replace(workload, intercept=intercept, **of_task)
        plan = choose(forms, workload, asked, free_memory)
        return self.represent(plan.representation), plan


class LeastSquares(ScoresTask):
    """Multi-task least squares, F(W) = ½‖XW - Y‖²; its line search is in closed form.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> X, Y, _ = dt.datasets.make_multitask(n=200, d=10, m=8, rank=2, random_state=0)
    >>> result = dt.solve(dt.LeastSquares(), X, Y, radius=1.0)
    >>> result.objective < 0.01 * result.objective_at_zero
    True
    """

    representations = ("gram", "implicit", "dense", "factored")

    def __init__(self) -> None:
        super().__init__(SquaredLoss())


class Multinomial(ScoresTask):
    """Multinomial logistic regression, F(W) = Σ_i log Σ_c exp(x_iᵀw_c) - x_iᵀw_{y_i}.

    Every class has a column in W, as in the paper's formula: none is fixed to zero.

    Parameters
    ----------
    n_classes : int, optional
        Number m of classes; one more than the largest label in y by default.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> X, y, _ = dt.datasets.make_multiclass(n=200, d=10, m=5, rank=2, random_state=0)
    >>> result = dt.solve(dt.Multinomial(), X, y, radius=20.0)
    >>> bool(((X @ result.W).argmax(axis=1) == y).mean() > 0.8)
    True
    """

    log_factor = 0.5

    def __init__(self, n_classes: int | None = None) -> None:
        super().__init__(MultinomialLoss(n_classes))


#: What F is, before the form is chosen that shards hold it in.
Objective: TypeAlias = ScoresTask | Task[Any]


class _Adopted(Task[Any]):
    """An object that only has methods of a task, asked for them once; the others are defaults."""

    def __init__(self, task: object) -> None:
        self._task = task
        for name in vars(Task):
            if not name.startswith("_") and name != "identity":
                with suppress(AttributeError):
                    setattr(self, name, getattr(task, name))

    def __reduce__(self) -> tuple[type[_Adopted], tuple[object]]:
        return _Adopted, (self._task,)

    @property
    def identity(self) -> object:
        return self._task


def as_task(task: object) -> Objective:
    """The task itself; an object with the methods of a task gets the defaults of the others."""
    if isinstance(task, ScoresTask):
        return task
    adopted = task if isinstance(task, Task) else _Adopted(task)
    if isinstance(task, type) or not (adopted.supports("stats") and adopted.supports("update")):
        raise TypeError(
            f"task must be an object such as LeastSquares(), or have the methods stats and update, "
            f"got {describe(task)}."
        )
    lacking = [name for name in ("matvec", "rmatvec") if not adopted.supports(name)]
    if len(lacking) == 1:
        raise TypeError(f"task lacks the method {lacking[0]!r}: products need both sides.")
    return adopted
