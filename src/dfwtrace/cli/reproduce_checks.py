"""What ``dfwtrace reproduce`` refuses before it measures anything, as that may take hours."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from dfwtrace.cli.guard import CommandError
from dfwtrace.cli.spark import session
from dfwtrace.data.table import DataFileError
from dfwtrace.experiments import figure3, figure4, spectrum
from dfwtrace.experiments.exhibits import Experiment, Setting
from dfwtrace.experiments.features import read_imagenet, read_intents
from dfwtrace.experiments.mixing import MixtureError, refuse_mixture
from dfwtrace.experiments.reproduction import EXPERIMENTS
from dfwtrace.experiments.store import Rows


def refuse_folder(folder: Path) -> None:
    """A folder in which no row could be kept."""
    if (folder.exists() or folder.is_symlink()) and not folder.is_dir():
        raise CommandError(f"--out: {folder} is not a folder.")
    there = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    try:
        with TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise CommandError(f"--out: {there} cannot be written to: {error.strerror}.") from error
    rows = folder / "rows.jsonl"
    if rows.exists() and not os.access(rows, os.W_OK):
        raise CommandError(f"--out: {rows} is read-only.")


def refuse_rows(folder: Path, rows: Rows, here: Setting, measured: Sequence[Experiment]) -> None:
    """Rows that do not belong beside those that will be measured."""
    names = [experiment.NAME for experiment in measured]
    try:
        refuse_mixture(list(EXPERIMENTS.values()), _with_spark(here), list(rows), names)
    except MixtureError as error:
        raise CommandError(f"--out: {folder} holds {error}; name another.") from error


def refuse_data(here: Setting, experiments: Sequence[Experiment], rows: Rows) -> None:
    """Files that a run which is still to be made cannot learn from; they are read in full."""
    read: dict[str, tuple[Path | None, Callable[[Path], Any], set[str]]] = {
        "--imagenet": (here.imagenet, read_imagenet, {figure3.NAME}),
        "--clinc150": (here.intents, read_intents, {figure3.NAME, spectrum.NAME}),
    }
    wanted = {e.NAME for e in experiments if any(rows.find(run) is None for run in e.runs(here))}
    for name, (path, reader, users) in read.items():
        if path is not None and users & wanted:
            try:
                reader(path)
            except DataFileError as error:
                raise CommandError(f"{name}: {error}") from error


def refuse_master(
    master: str | None, here: Setting, experiments: Sequence[Experiment], rows: Rows
) -> None:
    """A cluster on which nothing would run, or that does not answer."""
    if master is None or here.where == "spark":
        return
    if figure4.NAME not in {experiment.NAME for experiment in experiments}:
        raise CommandError("--master: only figure 4 and --engine spark run on Spark.")
    if wants_spark(here, rows):
        with session(master):
            pass


def wants_spark(here: Setting, rows: Rows) -> bool:
    """Whether figure 4 is still to be measured."""
    return any(rows.find(run) is None for run in figure4.runs(_with_spark(here)))


def _with_spark(here: Setting) -> Setting:
    """The setting whose runs are those that there would be with a Spark."""
    return replace(here, spark=True)
