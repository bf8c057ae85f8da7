"""Measures what is missing, then draws figures, claims and page from all rows."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType

from benchmarks import spark_session
from benchmarks.provenance import ROOT, commit

from reproduction import data, rows
from reproduction.methods import Options
from reproduction.page import parts, verdicts_table, write_results

_SCRIPTS = (
    *("figure1", "figure2", "figure3", "figure4"),
    *("table1", "table2", "spectrum", "theorem", "starts"),
)
EXPERIMENTS: dict[str, ModuleType] = {
    module.NAME: module
    for module in (import_module(f"reproduction.{script}") for script in _SCRIPTS)
}
RESULTS = ROOT / "reproduction" / "results"
DOCS = ROOT / "docs" / "reproducing.md"
_BEGIN, _END = "<!-- claims: begin -->\n", "<!-- claims: end -->\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command: 0 done, 1 an experiment failed, 2 bad options or rows, 130 interrupted."""
    asked = _parse(arguments)
    folder: Path = asked.out or ROOT / "reproduction" / "out" / asked.scale
    failed: list[str] = []
    try:
        if not asked.draw_only:
            options = Options(asked.scale, asked.clinc150, asked.imagenet)
            chosen = [EXPERIMENTS[name] for name in asked.only or EXPERIMENTS]
            failed = measure(chosen, options, folder)
        known = rows.read(folder)
        if not known and not failed:
            raise ValueError(f"--out: {folder} has no rows to draw.")
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"Interrupted: the same command goes on with the rows in {folder}.", file=sys.stderr)
        return 130
    found = parts(list(EXPERIMENTS.values()), known)
    for part in found:
        print(f"\n{part.title}")
        for claim in part.claims:
            print(f"  {claim.text}\n    {claim.verdict} ({claim.kind}): {claim.explained}")
    if known:
        write_results(folder, found, known, asked.scale)
        print(f"\n{len(known)} rows, figures and the page {folder / 'report.html'} were written.")
    if folder.resolve().parent == RESULTS:
        rows.write(DOCS, with_claims(DOCS.read_text("utf-8")))
    return 1 if failed else 0


def measure(experiments: Sequence[ModuleType], options: Options, folder: Path) -> list[str]:
    """Make all runs that have no row yet; return the names of the experiments that failed.

    Each row is on the disk before the next run begins. An experiment that fails does not stop the
    others.
    """
    commit()  # what runs from here on is what is there now
    known = rows.read(folder)
    runs = {experiment: experiment.runs(options) for experiment in experiments}
    for experiment, own in runs.items():
        rows.refuse_mixture(known, experiment.NAME, experiment.KEYS, own)
    total, done, failed = sum(map(len, runs.values())), 0, []
    for experiment, own in runs.items():
        for place, run in enumerate(own, start=done + 1):
            there = rows.find(known, experiment.NAME, run) is not None
            words = rows.label(experiment.NAME, run)
            print(f"[{place}/{total}] {words}{' (known)' if there else ''}", flush=True)
            if there:
                continue
            try:
                row = rows.measure(experiment.NAME, run, partial(experiment.measure, options))
            except spark_session.NoSparkError as lacking:
                print(f"The rest of {experiment.NAME} is left out: {lacking}.", file=sys.stderr)
                break
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
                print(f"{experiment.NAME} cannot be measured: {why}", file=sys.stderr)
                failed.append(experiment.NAME)
                break
            rows.add(folder, row)
        done += len(own)
        data.forget()
        spark_session.stop()
    return failed


def with_claims(page: str) -> str:
    """Return a page with the verdicts of the kept rows between its markers."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    scales = {"small scale": "small", "paper's sizes": "paper"}
    experiments = list(EXPERIMENTS.values())
    found = {name: parts(experiments, rows.read(RESULTS / of)) for name, of in scales.items()}
    return f"{before}{begin}\n{verdicts_table(found)}\n{end}{after}"


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m reproduction",
        description="Reproduce the paper's figures, tables and claims. Rows that are there are not "
        "measured again: after an interrupt, the same command goes on.",
    )
    add = parser.add_argument
    scales, names = ["toy", "small", "paper"], list(EXPERIMENTS)
    known = f"may be repeated: {', '.join(names)}"
    size = "small (the default) takes minutes, paper hours; toy only shows that it works"
    add("--scale", choices=scales, default="small", help=size)
    add("--only", action="append", choices=names, metavar="NAME", help=known)
    add("--out", type=Path, help="folder; reproduction/out/SCALE by default")
    add("--draw-only", action="store_true", help="measure nothing, draw what is there")
    add("--imagenet", type=_path, help="folder with ImageNet's features, for figure 3")
    intents = "file with all of CLINC150's embeddings instead of the examples' part of them"
    add("--clinc150", type=_path, default=Options("small").intents, help=intents)
    return parser.parse_args(arguments)


def _path(text: str) -> Path:
    if not Path(text).exists():
        raise argparse.ArgumentTypeError(f"{text} does not exist")
    return Path(text)


if __name__ == "__main__":
    sys.exit(main())
