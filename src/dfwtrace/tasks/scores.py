"""Tasks made of a loss on the scores XW, and the representations that they can take."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, ClassVar

from dfwtrace._typing import Array, Matrix
from dfwtrace.losses import Loss, MultinomialLoss, SquaredLoss
from dfwtrace.tasks.factored import FactoredTask
from dfwtrace.tasks.gram import GramTask
from dfwtrace.tasks.implicit import DenseTask, ImplicitTask
from dfwtrace.tasks.weights import own_targets
from dfwtrace.validation import describe


class ScoresTask:
    """F(W) = Σ_i ℓ(x_iᵀW, y_i) for any loss ℓ on a row of scores.

    Parameters
    ----------
    loss : Loss
        See `dfwtrace.losses.Loss` for the two or three methods that a loss of one's own needs.

    Examples
    --------
    >>> import dfwtrace as dt
    >>> dt.ScoresTask(dt.losses.SquaredLoss()).representations
    ('implicit', 'dense', 'factored')
    """

    representations: tuple[str, ...] = ("implicit", "dense", "factored")
    #: c in K(t) = ⌊1 + c log t⌋ when the oracle is named "power-log" (the paper's experiments).
    log_factor: float = 1.0

    _forms: ClassVar[dict[str, Callable[[Loss, bool], Any]]] = {
        "implicit": ImplicitTask,
        "dense": DenseTask,
        "factored": FactoredTask,
        "gram": lambda loss, weighted: GramTask(weighted),
    }

    def __init__(self, loss: Loss) -> None:
        if not isinstance(loss, Loss):
            raise TypeError(f"loss must be a Loss such as SquaredLoss(), got {describe(loss)}.")
        self.loss = loss
        self.weighted = False

    def with_weights(self) -> ScoresTask:
        """The same task where the first column of y is the weight of each row."""
        other = copy(self)
        other.weighted = True
        return other

    @property
    def name(self) -> str:
        return self.loss.name

    def check(self, X: Matrix, y: Array | None) -> tuple[Matrix, Array]:
        """Refuse targets that the loss cannot take; see `Loss.check_targets`."""
        targets = self._examine(y)[0]
        # With weights the targets stay as they are until the shards part them.
        return X, targets if y is None or not self.weighted else y

    def check_width(self, width: int, n_rows: int) -> None:
        """Refuse what can only be told when all rows have been seen; see `Loss.check_width`."""
        self.loss.check_width(width, n_rows)

    def shape(self, X: Matrix, y: Array | None) -> tuple[int, int]:
        """The shape (d, m) of W."""
        return int(X.shape[1]), self._examine(y)[1]

    def _examine(self, y: Array | None) -> tuple[Array, int]:
        """The targets without their weights, and the width of the scores."""
        if y is None or not self.weighted:
            return self.loss.check_targets(y)
        if y[:, 0].min() < 0.0:
            raise ValueError(f"sample_weight must not be negative, got {y[:, 0].min():g}.")
        return self.loss.check_targets(own_targets(y))

    def represent(self, name: str) -> Any:
        """The task in one of its `representations`: an object with the methods of `Task`."""
        if not isinstance(name, str) or name not in self.representations:
            raise ValueError(
                f"representation must be one of {', '.join(self.representations)} or auto for "
                f"{self.name}, got {describe(name)}."
            )
        return self._forms[name](self.loss, self.weighted)


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
