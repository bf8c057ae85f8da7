"""The commands, put together."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

import typer
from typer import Option
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from dfwtrace import __version__
from dfwtrace.cli.fit import demo, fit, path, plan
from dfwtrace.cli.output import guarded
from dfwtrace.cli.predict import evaluate, inspect, predict

_EXAMPLES: dict[Callable[..., None], str] = {
    fit: "fit train.csv --target label --out model.safetensors --report report.html",
    predict: "predict model.safetensors new.csv --out predictions.csv --proba",
    evaluate: "evaluate model.safetensors test.csv --target label",
    path: "path train.csv --target label --radii 10 --cv 5",
    inspect: "inspect model.safetensors",
    plan: "plan train.parquet --target label",
    demo: "demo",
}
# Options by their former names, which still work.
_FORMER = {"--seed": "--random-state", "--folds": "--cv"}


# What the help shows for the value of an option, by the panel that the option is in.
_PANELS: dict[str, dict[str, str]] = {
    "Data": {
        "target": "NAME", "features": "NAMES", "weight": "NAME", "drop": "NAMES", "keep": "NAMES",
        "categorical": "NAMES", "impute": "mean|median", "task": "KIND", "test": "FILE",
        "dtype": "TYPE", "spill": "FOLDER",
    },
    "Model": {
        "radius": "NUMBER", "radii": "COUNT|LIST", "cv": "N", "no_intercept": "",
        "class_weight": "balanced", "standardize": "",
    },
    "Run": {
        "solver": "NAME", "lmo": "NAME", "step": "RULE", "tol": "NUMBER", "max_iter": "N",
        "max_time": "SECONDS", "random_state": "N", "representation": "FORM", "n_shards": "N",
        "n_jobs": "N", "engine": "NAME", "master": "URL", "checkpoint": "FILE",
        "early_stopping": "", "validation_fraction": "NUMBER", "n_iter_no_change": "N",
    },
    "Output": {
        "out": "FILE", "report": "FILE", "proba": "", "top": "N", "json": "", "quiet": "",
        "verbose": "", "help": "",
    },
}  # fmt: skip


class Command(TyperCommand):
    """A command whose help is in panels, without the types of Python."""

    def get_params(self, ctx: Any) -> list[Any]:
        params = _without_types(super().get_params(ctx))
        for param in params:
            for panel, values in _PANELS.items():
                if param.name in values and param.param_type_name == "option":
                    param.rich_help_panel = panel
                    param.metavar = values[param.name] if param.metavar is None else param.metavar
        return params


def _without_types(params: list[Any]) -> list[Any]:
    """Show no value for flags, which take none."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


class Commands(TyperGroup):
    """Ends whatever goes wrong in a command with one sentence and an exit code."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))

    def main(self, args: Sequence[str] | None = None, *more: Any, **options: Any) -> Any:
        given = list(sys.argv[1:] if args is None else args)
        words = [_current(word) for word in given if word != "--debug"]  # allowed anywhere
        run = partial(super().main, words, *more, **options | {"standalone_mode": False})
        sys.exit(guarded(run, as_json="--json" in words, debug=len(words) < len(given)))


def _current(word: str) -> str:
    """Return an option by its present name, with a warning if it had another one."""
    name, sign, value = word.partition("=")
    if name not in _FORMER:
        return word
    print(f"Warning: {name} is deprecated: use {_FORMER[name]}.", file=sys.stderr, flush=True)
    return _FORMER[name] + sign + value


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"dfwtrace {__version__}")
        raise typer.Exit


Version = Annotated[bool, Option("--version", help="Print the version.", callback=_show_version)]
Debug = Annotated[bool, Option("--debug", help="Show the traceback of an unexpected error.")]


def dfwtrace(version: Version = False, debug: Debug = False) -> None:
    """Low-rank models under a trace-norm constraint, with a certified gap.

    Exit codes: 0 done, 1 failed, 2 bad options or data, 3 a fit ended short of
    its tolerance (the model is saved all the same), 130 interrupted.
    """


app = typer.Typer(
    cls=Commands, callback=dfwtrace, no_args_is_help=True, add_completion=False,
    pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip
for _command, _example in _EXAMPLES.items():
    app.command(cls=Command, epilog=f"Example: dfwtrace {_example}")(_command)
run = get_command(app)
