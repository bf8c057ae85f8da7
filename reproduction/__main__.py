"""Measures what is missing, then draws figures, claims and page from all rows."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import ModuleType

from benchmarks import spark_session
from benchmarks.provenance import ROOT, commit

from reproduction import (
    data,
    figure1,
    figure2,
    figure3,
    figure4,
    rows,
    spectrum,
    starts,
    table1,
    table2,
    theorem,
)
from reproduction.methods import Options
from reproduction.page import Part, parts, verdicts_table, write_results

EXPERIMENTS: dict[str, ModuleType] = {
    module.NAME: module
    for module in (
        *(figure1, figure2, figure3, figure4, table1, table2),
        *(spectrum, theorem, starts),
    )
}
RESULTS = ROOT / "reproduction" / "results"
DOCS = ROOT / "docs" / "reproducing.md"
_BEGIN, _END = "<!-- claims: begin -->\n", "<!-- claims: end -->\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 if all went well, 1 if an experiment failed, 130 after Ctrl-C."""
    asked = _parse(arguments)
    folder: Path = asked.out or ROOT / "reproduction" / "out" / asked.scale
    options = Options(asked.scale, imagenet=asked.imagenet)
    if asked.clinc150 is not None:
        options = options._replace(intents=asked.clinc150)
    failed: list[str] = []
    try:
        if not asked.draw_only:
            failed = measure(
                [EXPERIMENTS[name] for name in asked.only or EXPERIMENTS], options, folder
            )
        known = rows.read(folder)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        count = len(rows.read(folder))
        print(f"Interrupted: {folder} has {count} rows; the same command goes on.", file=sys.stderr)
        return 130
    if not known:
        print(f"error: --out: {folder} has no rows to draw.", file=sys.stderr)
        return 1 if failed else 2
    found = parts(list(EXPERIMENTS.values()), known)
    write_results(folder, found, known, asked.scale)
    _print_claims(found)
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
    """Return a page with the claims of the kept rows between its markers."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    experiments = list(EXPERIMENTS.values())
    scales = {
        "small scale": parts(experiments, rows.read(RESULTS / "small")),
        "paper's sizes": parts(experiments, rows.read(RESULTS / "paper")),
    }
    return f"{before}{begin}\n{verdicts_table(scales)}\n{end}{after}"


def _print_claims(found: Sequence[Part]) -> None:
    for part in found:
        print(f"\n{part.title}")
        for claim in part.claims:
            whose = "" if claim.kind == "paper" else f" ({claim.kind})"
            print(f"  {claim.text}\n    {claim.verdict}{whose}: {claim.explained}")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m reproduction",
        description="Reproduce the paper's figures, tables and claims. Rows that are there are not "
        "measured again: after an interrupt, the same command goes on.",
    )
    parser.add_argument(
        "--scale",
        choices=["toy", "small", "paper"],
        default="small",
        help="small takes minutes, paper hours; toy only shows that it works",
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=list(EXPERIMENTS),
        metavar="NAME",
        help=f"may be repeated: {', '.join(EXPERIMENTS)}",
    )
    parser.add_argument("--out", type=Path, help="folder; reproduction/out/SCALE by default")
    parser.add_argument(
        "--draw-only", action="store_true", help="measure nothing, draw what is there"
    )
    parser.add_argument("--imagenet", type=_path, help="folder with ImageNet's features (figure 3)")
    parser.add_argument("--clinc150", type=_path, help="file with all of CLINC150's embeddings")
    return parser.parse_args(arguments)


def _path(text: str) -> Path:
    if not Path(text).exists():
        raise argparse.ArgumentTypeError(f"{text} does not exist")
    return Path(text)


if __name__ == "__main__":
    sys.exit(main())
