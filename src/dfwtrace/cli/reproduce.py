"""``dfwtrace reproduce``: the paper's figures, tables and claims, measured again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from dfwtrace.cli import options as shared
from dfwtrace.cli import reproduce_checks as checks
from dfwtrace.cli.guard import (
    BAD_INPUT,
    FAILED,
    INTERRUPTED,
    CommandError,
    refusing,
    sentence_of,
)
from dfwtrace.cli.output import Output
from dfwtrace.cli.spark import session
from dfwtrace.engines import LocalEngine, SparkEngine
from dfwtrace.experiments import figure4
from dfwtrace.experiments.exhibits import Experiment, Setting
from dfwtrace.experiments.features import find_intents
from dfwtrace.experiments.page import Part, require_page
from dfwtrace.experiments.provenance import cores
from dfwtrace.experiments.reproduction import Progress, choose, measure, missing, write
from dfwtrace.experiments.store import Rows
from dfwtrace.experiments.tallies import NAMES


def command(
    scale: Annotated[
        Literal["toy", "small", "paper"],
        typer.Option(help="small takes minutes, paper hours; toy only shows that it works."),
    ] = "small",
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Such as 'figure 1'; may be repeated.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for rows, figures and page. Default: reproduction/SCALE."),
    ] = None,
    engine: Annotated[
        Literal["local", "spark"], typer.Option(help="Where the methods run.")
    ] = "local",
    master: Annotated[
        str | None, typer.Option(help="Spark's, such as spark://host:7077. Default: this machine.")
    ] = None,
    imagenet: Annotated[
        Path | None, typer.Option(help="Folder with ImageNet's features, for figure 3.")
    ] = None,
    clinc150: Annotated[
        Path | None, typer.Option(help="File or folder with CLINC150's embeddings.")
    ] = None,
    draw_only: Annotated[
        bool, typer.Option("--draw-only", help="Measure nothing; draw what there are rows of.")
    ] = False,
    json: shared.JsonOption = False,
    quiet: shared.QuietOption = False,
) -> None:
    """Regenerate every figure and table of the paper, and say which of its claims hold here.

    Rows that a folder holds already are not measured again: after an interrupt,
    the same command goes on.

    Example: dfwtrace reproduce --scale small
    """
    output = Output(json, quiet)
    for name, path in (("--imagenet", imagenet), ("--clinc150", clinc150)):
        if path is not None and not path.exists():
            raise CommandError(f"{name}: {path} does not exist.")
    folder = out or Path("reproduction") / (scale if engine == "local" else f"{scale}-{engine}")
    require_page()
    checks.refuse_folder(folder)
    with refusing():
        experiments = choose(only or [])
        rows = Rows(folder)
    here = Setting(scale, engine, LocalEngine, clinc150 or find_intents(), imagenet)
    checks.refuse_rows(folder, rows, here, [] if draw_only else experiments)
    failed: list[str] = []
    if not draw_only:
        checks.refuse_data(here, experiments, rows)
        checks.refuse_master(master, here, experiments, rows)
        try:
            failed = _measure(here, experiments, rows, master, output)
        except KeyboardInterrupt:
            raise CommandError(
                f"Interrupted: rows in {folder}: {len(rows)}; the same command goes on.",
                INTERRUPTED,
            ) from None
    if not len(rows):
        raise CommandError(f"{folder}: there are no rows to draw.", FAILED if failed else BAD_INPUT)
    parts = write(folder, list(rows), scale)
    _say(parts, output)
    for name in missing(parts, list(rows)):
        output.warn(f"{name}: not all of its rows are there, so that it is not shown.")
    output.say(f"\n{len(rows)} rows, figures and the page {folder / 'report.html'} were written.")
    claims = [(part.title, claim) for part in parts for claim in part.claims]
    output.tell(
        {
            "folder": str(folder),
            "rows": len(rows),
            "claims": [
                {
                    "experiment": title,
                    "claim": claim.text,
                    "kind": claim.kind,
                    "measured": claim.measured,
                    "holds": claim.holds,
                    "reason": claim.reason if claim.holds is False else "",
                }
                for title, claim in claims
            ],
            "failed": failed,
        }
    )
    if failed:
        raise typer.Exit(FAILED)


def _measure(
    here: Setting, experiments: list[Experiment], rows: Rows, master: str | None, output: Output
) -> list[str]:
    """Make the runs, with a Spark only for those that want it: a JVM takes time from the others.

    Returns the experiments that could not be made.
    """
    failed: list[str] = []

    def make(setting: Setting, some: list[Experiment]) -> None:
        for _ in measure(setting, some, rows, lambda step: _note(step, output), fail):
            pass

    def fail(name: str, error: BaseException) -> None:
        why = "the memory is not enough." if isinstance(error, MemoryError) else sentence_of(error)
        output.warn(f"{name} cannot be measured: {why}")
        failed.append(name)

    if here.where == "spark":
        with session(master or f"local[{cores()}]") as spark:
            on_spark = replace(here, engine=lambda shards: SparkEngine(spark, shards), spark=spark)
            make(on_spark, experiments)
        return failed
    make(here, [one for one in experiments if one.NAME != figure4.NAME])
    speed_up = [one for one in experiments if one.NAME == figure4.NAME]
    if speed_up and checks.wants_spark(here, rows):
        with _spark(master, output) as spark:
            make(replace(here, spark=spark), speed_up)
    return failed


@contextmanager
def _spark(master: str | None, output: Output) -> Iterator[Any]:
    """A session, or None where there is no Spark and nobody insists on it."""
    with ExitStack() as held:
        spark = None
        try:
            spark = held.enter_context(session(master or f"local[{cores()}]"))
        except (CommandError, ImportError, RuntimeError) as error:
            if master is not None:
                raise
            output.warn(f"without Spark, its part of figure 4 is left out: {sentence_of(error)}")
        yield spark


def _note(step: Progress, output: Output) -> None:
    known = " (known)" if step.known else ""
    output.note(f"[{step.number}/{step.of}] {step.run.label}{known}")


def _say(parts: list[Part], output: Output) -> None:
    for part in parts:
        output.say(f"\n{part.title}")
        for claim in part.claims:
            why = f" {claim.reason}" if claim.holds is False else ""
            whose = "" if claim.kind == "paper" else f" ({NAMES[claim.kind][1]})"
            output.say(f"  {claim.text}\n    {claim.verdict}{whose}: {claim.measured}{why}")
