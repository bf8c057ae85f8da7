"""A fit, here or on Spark: from rows to a model, with Ctrl-C and warnings in our own words."""

from __future__ import annotations

from typing import Any

from dfwtrace.cli.data import judge
from dfwtrace.cli.following import followed_by
from dfwtrace.cli.guard import INTERRUPTED, CommandError, refusing
from dfwtrace.cli.models import Model
from dfwtrace.cli.monitors import monitor_for
from dfwtrace.cli.output import Output
from dfwtrace.cli.settings import FitSettings
from dfwtrace.data.table import Table


def fit_table(
    table: Table, task: str, settings: FitSettings, output: Output, verbose: bool
) -> Model:
    """Fit rows that are here."""
    assert table.y is not None  # the reader has seen to it
    task, y = judge(table.y, task, table.target_names)
    estimator = settings.estimator(task)
    fit(estimator, task, (table.X, y, table.weight), {}, settings, output, verbose)
    return Model(estimator, table.feature_names, None, table.target_names)


def fit(
    estimator: Any,
    task: str,
    data: tuple[Any, ...],
    more: dict[str, Any],
    settings: FitSettings,
    output: Output,
    verbose: bool,
) -> None:
    """Say what is done, and fit an estimator with the monitor that the user asked for.

    Returns after Ctrl-C too, if there is a model to be saved then.
    """
    try:
        output.note(_announcement(task, settings))
        monitor = monitor_for(output, verbose, settings.runs)
        with output.listening(), refusing(), followed_by(monitor):
            estimator.fit(*data, **more)
    except KeyboardInterrupt:
        before = "during cross-validation" if settings.validates else "before the first epoch"
        raise CommandError(f"Interrupted {before}: nothing was saved.", INTERRUPTED) from None
    if estimator.status_ == "interrupted" and not estimator.n_iter_:
        raise CommandError("Interrupted before the first epoch: nothing was saved.", INTERRUPTED)


def _announcement(task: str, settings: FitSettings) -> str:
    how = task.capitalize()
    if not settings.validates:
        return f"{how} with radius {settings.radius:g}."
    tries = settings.tries
    count = tries if isinstance(tries, int) else len(tries)
    chosen = "; --radius sets one" if settings.radii is None else ""
    radii = "1 radius" if count == 1 else f"{count} radii"
    return f"{how}; cross-validating over {radii} in {settings.folds} folds{chosen}."
