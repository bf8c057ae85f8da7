"""``dfwtrace fit``: from a file of rows to a file with a model."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from dfwtrace._typing import Array, Matrix
from dfwtrace.cli import options as shared
from dfwtrace.cli.data import Wanted, array_of, known_rows, require_same_kind, training_rows
from dfwtrace.cli.fitting import fit_table
from dfwtrace.cli.guard import CommandError
from dfwtrace.cli.models import Model
from dfwtrace.cli.outcome import Outcome, finish, keep
from dfwtrace.cli.outfiles import check_outputs
from dfwtrace.cli.output import Output
from dfwtrace.cli.scores import Scores, score
from dfwtrace.cli.settings import FitSettings


def command(
    train: Annotated[
        str,  # not a path, which would make hdfs:/host of hdfs://host
        typer.Argument(metavar="TRAIN", help=shared.FORMATS, show_default=False),
    ],
    target: shared.TargetOption = None,
    features: shared.FeaturesOption = None,
    weight: shared.WeightOption = None,
    task: shared.TaskOption = "auto",
    radius: Annotated[
        float | None, typer.Option(help="Bound of the trace norm; without it, cross-validation.")
    ] = None,
    radii: Annotated[
        str | None,
        typer.Option(
            metavar="COUNT|LIST", help="Radii to cross-validate: how many, or 1,3,10. Default: 10."
        ),
    ] = None,
    folds: Annotated[int, typer.Option(min=2, help="Folds of the cross-validation.")] = 5,
    solver: Annotated[shared.SolverName, typer.Option(help="dfw is the paper's.")] = "accelerated",
    lmo: Annotated[str | None, typer.Option(help="Oracle of dfw, such as power-log.")] = None,
    step: Annotated[
        str | None, typer.Option(help="Step of dfw: linesearch, harmonic or a number.")
    ] = None,
    tol: Annotated[
        float | None, typer.Option(help="Relative gap to reach. Default: 1e-4, for dfw none.")
    ] = None,
    max_iter: Annotated[int | None, typer.Option(min=1, help="Epochs at the most.")] = None,
    max_time: Annotated[float | None, typer.Option(help="Seconds at the most.")] = None,
    no_intercept: Annotated[bool, typer.Option("--no-intercept", help="No free term.")] = False,
    class_weight: Annotated[
        Literal["balanced"] | None, typer.Option(help="Every class counts the same.")
    ] = None,
    engine: Annotated[Literal["local", "spark"], typer.Option(help="Where it runs.")] = "local",
    master: Annotated[
        str | None, typer.Option(help="Spark's, such as local[2] or spark://host:7077.")
    ] = None,
    n_shards: Annotated[
        int | None, typer.Option(min=1, help="Logical shards. Default: 8, or 1 for small data.")
    ] = None,
    n_jobs: Annotated[int | None, typer.Option(help="Threads, or Spark's workers.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="The same in every fit.")] = None,
    representation: Annotated[
        shared.Representation, typer.Option(help="What a shard keeps.")
    ] = "auto",
    dtype: Annotated[
        shared.Precision | None, typer.Option(help="Precision of the features; as in the file.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="A file to go on from if the fit is killed.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The model.")] = Path(
        "model.safetensors"
    ),
    report: Annotated[Path | None, typer.Option(help="An HTML page about the fit.")] = None,
    test: Annotated[Path | None, typer.Option(help="Rows to score the model on.")] = None,
    spill: Annotated[
        Path | None, typer.Option(help="A folder for features that do not fit in memory.")
    ] = None,
    json: shared.JsonOption = False,
    quiet: shared.QuietOption = False,
    verbose: shared.VerboseOption = False,
) -> None:
    """Learn a low-rank classifier or regressor.

    Example: dfwtrace fit train.csv --target label --out model.safetensors --report report.html
    """
    output, began = Output(json, quiet), time.perf_counter()
    settings = FitSettings(
        radius,
        shared.radii_of(radii),
        folds,
        solver,
        lmo,
        shared.step_of(step),
        tol,
        max_iter,
        max_time,
        not no_intercept,
        class_weight,
        n_shards,
        n_jobs,
        seed,
        representation,
        checkpoint,
    )
    if engine != "spark" and master is not None:
        raise CommandError("--master belongs to --engine spark.")
    if engine == "spark" and spill is not None:
        raise CommandError("--spill belongs to --engine local: Spark keeps its rows itself.")
    if report is not None and importlib.util.find_spec("jinja2") is None:
        raise ImportError("a report needs jinja2: pip install 'dfwtrace[report]'.")
    check_outputs(
        {"--out": out, "--report": report, "--checkpoint": checkpoint},
        {"the data": Path(train), "--test": test},
    )
    if test is not None and not test.exists():
        raise CommandError(f"{test} is not there.")
    scores: dict[str, Scores] = {}
    if engine == "spark":
        from dfwtrace.cli.spark import fit_frame

        model, source = fit_frame(
            train,
            master=master,
            target=target,
            features=features,
            weight=weight,
            dtype=dtype,
            task=task,
            settings=settings,
            output=output,
            verbose=verbose,
        )
        seconds = time.perf_counter() - began
        model = keep(model._replace(target=target), out)
        output.say(source)
        if test is not None:
            scores["test"] = _scored(model, known_rows(test, model.wanted), test.name, output)
    else:
        with training_rows(
            Path(train), target=target, features=features, weight=weight, dtype=dtype, spill=spill
        ) as table:
            source = table.source
            output.say(source)
            array, first_index = array_of(Path(train), features), table.first_index
            held_out = None
            if test is not None:  # what is wrong with it should be known before the fit
                names, width = table.feature_names, table.X.shape[1]
                wanted = Wanted(names, width, target, table.target_names, array, first_index)
                held_out = known_rows(test, wanted)
                require_same_kind(held_out[1], table, task, test.name)
            model = fit_table(table, task, settings, output, verbose)
            seconds = time.perf_counter() - began
            model = keep(model._replace(target=target, array=array, first_index=first_index), out)
            assert table.y is not None
            scores["training"] = score(model, table.X, table.y)
        if test is not None and held_out is not None:
            scores["test"] = _scored(model, held_out, test.name, output)
    place = "local" if engine == "local" else f"spark {master or ''}".strip()
    finish(Outcome(model, source, settings, place, scores, out, report, seconds), output)


def _scored(model: Model, rows: tuple[Matrix, Array], name: str, output: Output) -> Scores:
    found = score(model, *rows)
    if found.warning is not None:
        output.warn(f"{name}: {found.warning}")
    return found
