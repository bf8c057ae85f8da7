"""``dfwtrace evaluate``: how good a model is on rows with known targets."""

from __future__ import annotations

from dfwtrace.cli import options as shared
from dfwtrace.cli.data import known_rows
from dfwtrace.cli.guard import refusing
from dfwtrace.cli.models import load_model
from dfwtrace.cli.output import Output
from dfwtrace.cli.scores import score
from dfwtrace.cli.words import by_key, lines, scored, worst_lines

# Classes or targets that a JSON object lists.
_MOST_WORST = 50


def command(
    model: shared.ModelArgument,
    data: shared.DataArgument,
    target: shared.TargetOption = None,
    json: shared.JsonOption = False,
    quiet: shared.QuietOption = False,
) -> None:
    """Score a model: accuracy, balanced accuracy and log loss, or R² and RMSE.

    The target is that of the fit, unless --target names another.

    Example: dfwtrace evaluate model.safetensors test.csv --target label
    """
    output = Output(json, quiet)
    known = load_model(model)
    X, y = known_rows(data, known.wanted, target)
    with refusing():
        found = score(known, X, y)
    if found.warning is not None:
        output.warn(found.warning)
    facts = [("rows", f"{len(y):,}"), *scored(found.values)]
    output.say(lines([*facts, *worst_lines(found.worst, known.classifies)]))
    output.tell(
        {
            "rows": len(y),
            "task": known.task,
            "scores": by_key(found.values),
            "worst": [vars(entry) for entry in found.worst[:_MOST_WORST]],
        }
    )
