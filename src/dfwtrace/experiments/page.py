"""All figures, tables and claims as one page that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from importlib.util import find_spec
from typing import Any, NamedTuple

from dfwtrace.experiments.drawing import pictures
from dfwtrace.experiments.exhibits import Claim, Experiment, Table
from dfwtrace.experiments.runs import MissingRowsError, Row, of_experiment
from dfwtrace.report.page import page_style
from dfwtrace.report.pictures import Key, Picture

_OWN_STYLE = """
.claims td:last-child { white-space: nowrap; }
.scroll + .scroll { margin-top: 1rem; }
"""


class Drawn(NamedTuple):
    """Charts that share a legend."""

    title: str
    pictures: Sequence[Picture]
    legend: Sequence[Key]


class Part(NamedTuple):
    """A section of the page."""

    anchor: str
    title: str
    about: str
    drawn: Sequence[Drawn]
    notes: Sequence[str]
    tables: Sequence[Table]
    claims: Sequence[Claim]


def part_of(experiment: Experiment, rows: Sequence[Row]) -> Part | None:
    """What an experiment shows, or None if it has not all of its rows."""
    own = of_experiment(rows, experiment.NAME)
    if not own:
        return None
    try:
        shown, claims = experiment.exhibit(own), experiment.claims(own)
    except MissingRowsError:
        return None
    anchor = file_name(experiment.NAME)
    sets = (("", shown.panels), ("With the accelerated solver added", shown.beyond))
    return Part(
        anchor,
        experiment.TITLE,
        experiment.ABOUT,
        [
            Drawn(title, *pictures(panels, f"{anchor}-{place}"))
            for place, (title, panels) in enumerate(sets)
            if panels
        ],
        shown.notes,
        shown.tables,
        claims,
    )


def file_name(experiment: str) -> str:
    """An experiment's name for files and links.

    Examples
    --------
    >>> file_name("figure 1")
    'figure-1'
    """
    return experiment.replace(" ", "-")


def require_page() -> None:
    """Refuse to begin where no page could be written in the end."""
    if find_spec("jinja2") is None:
        raise ImportError("the page needs jinja2: pip install 'dfwtrace[report]'.")


def render(parts: Sequence[Part], rows: Sequence[Row], scale: str) -> str:
    """The page."""
    require_page()
    import jinja2
    import markupsafe

    style = page_style() + _OWN_STYLE
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    text = files("dfwtrace.experiments").joinpath("page.html.jinja").read_text("utf-8")
    claims = [claim for part in parts for claim in part.claims]
    return environment.from_string(text).render(
        parts=parts,
        scale=scale,
        row_count=len(rows),
        held=sum(claim.holds is True for claim in claims),
        judged=sum(claim.holds is not None for claim in claims),
        # Written by this package and escaped by the XML writer: the only text taken as it is.
        style=markupsafe.Markup(style),
        draw=lambda picture: markupsafe.Markup(picture.svg),
        style_hash=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        places=_places(rows),
    )


def _places(rows: Sequence[Row]) -> list[list[str]]:
    """Commits and machines, each with its number of rows."""
    places: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        versions = ", ".join(f"{name} {number}" for name, number in row["versions"].items())
        key = (row["commit"], row["cpu"], str(row["cores"]), ", ".join(row["blas"]), versions)
        places.setdefault(key, []).append(row)
    return [[*key, str(len(own)), *_when(own)] for key, own in places.items()]


def _when(rows: Sequence[Row]) -> tuple[str, str, str]:
    """From when to when, and the share that other programs had of the processors' time."""
    dates = [row["date"] for row in rows]
    # Short runs are counted in ticks of a hundredth of a second: they tell of it together only.
    others = sum(row["other_work"] * row["seconds"] for row in rows)
    return min(dates), max(dates), f"{others / sum(row['seconds'] for row in rows):.1%}"
