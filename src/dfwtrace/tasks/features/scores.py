"""Tasks made of a loss on the scores XW, and the representations that they can take."""

from __future__ import annotations

from copy import copy
from typing import Any, ClassVar

from dfwtrace._typing import Array, Matrix
from dfwtrace.data.rows import Examined
from dfwtrace.losses import Loss, MultinomialLoss, SquaredLoss
from dfwtrace.tasks.features.factored import FactoredTask
from dfwtrace.tasks.features.gram import GramTask
from dfwtrace.tasks.features.implicit import DenseTask, ImplicitTask
from dfwtrace.tasks.features.representation import Representation, own_targets
from dfwtrace.tasks.planning import Plan, Workload, choose
from dfwtrace.tasks.task import Objective, Task
from dfwtrace.validation import as_floating, describe


class ScoresTask(Objective):
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

    representations: tuple[str, ...] = ("implicit", "dense", "factored")
    _forms: ClassVar[dict[str, type[Representation[Any]]]] = {
        "gram": GramTask,
        "implicit": ImplicitTask,
        "dense": DenseTask,
        "factored": FactoredTask,
    }

    def __init__(self, loss: Loss) -> None:
        if not isinstance(loss, Loss):
            raise TypeError(f"loss must be a Loss such as SquaredLoss(), got {describe(loss)}.")
        self.loss = loss
        self.weighted = False

    @property
    def name(self) -> str:
        """Name of the loss."""
        return self.loss.name

    def with_weights(self) -> ScoresTask:
        """The same where the first column of y is the weight of each row."""
        other = copy(self)
        other.weighted = True
        return other

    def examine(self, X: Matrix, y: Array | None) -> Examined:
        if y is None:
            raise ValueError("y is missing: this task needs targets.")
        X = as_floating(X)
        if not self.weighted:
            targets, width = self.loss.check_targets(y)
            return Examined(X, targets, (int(X.shape[1]), width))
        if y[:, 0].min() < 0.0:
            raise ValueError(f"sample_weight must not be negative, got {y[:, 0].min():g}.")
        # The targets stay with their weights until a shard parts them.
        return Examined(X, y, (int(X.shape[1]), self.loss.check_targets(own_targets(y))[1]))

    def represent(self, name: str) -> Representation[Any]:
        """The task in one of its `representations`."""
        return self._forms[name](self.loss, self.weighted)

    def plan(
        self, workload: Workload, asked: str, free_memory: float | None, intercept: bool
    ) -> tuple[Task[Any], Plan]:
        alone = intercept and workload.local  # every shard is centred by itself
        forms = [n for n in self.representations if not alone or self._forms[n].centres_shards]
        if not isinstance(asked, str) or asked not in ("auto", *forms):
            raise ValueError(
                f"representation must be one of {', '.join(forms)} or auto for this run of "
                f"{self.name}, got {describe(asked)}."
            )
        plan = choose(forms, workload, asked, free_memory)
        return self.represent(plan.representation), plan


class LeastSquares(ScoresTask):
    """Multi-task least squares, F(W) = ½‖XW - Y‖²; its line search is in closed form.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> X, Y, _ = dt.datasets.make_multitask(n=200, d=10, m=8, rank=2, seed=0)
    >>> result = dt.solve(dt.LeastSquares(), X, Y, radius=1.0, epochs=30)
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
    >>> X, y, _ = dt.datasets.make_multiclass(n=200, d=10, m=5, rank=2, seed=0)
    >>> result = dt.solve(dt.Multinomial(), X, y, radius=20.0, epochs=30)
    >>> bool(((X @ result.W).argmax(axis=1) == y).mean() > 0.8)
    True
    """

    log_factor = 0.5

    def __init__(self, n_classes: int | None = None) -> None:
        super().__init__(MultinomialLoss(n_classes))
