"""All figures, tables and claims as one page that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from importlib.util import find_spec
from typing import NamedTuple

from dfwtrace.experiments.drawing import Group, groups
from dfwtrace.experiments.exhibits import Claim, Exhibit, Experiment
from dfwtrace.experiments.places import places
from dfwtrace.experiments.runs import MissingRowsError, Row, of_experiment
from dfwtrace.experiments.swatch import swatch
from dfwtrace.experiments.tallies import NAMES, tallies
from dfwtrace.experiments.unbroken import unbroken
from dfwtrace.report.page import page_style


class Drawn(NamedTuple):
    """Charts under one heading, in groups with a legend each."""

    title: str
    groups: Sequence[Group]


class Part(NamedTuple):
    """A section of the page."""

    anchor: str
    title: str
    about: str
    drawn: Sequence[Drawn]
    shown: Exhibit
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
            Drawn(title, groups(panels, f"{anchor}-{place}"))
            for place, (title, panels) in enumerate(sets)
            if panels
        ],
        shown,
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

    own = files("dfwtrace.experiments")
    style = page_style() + own.joinpath("page.css").read_text("utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    text = own.joinpath("page.html.jinja").read_text("utf-8")
    return environment.from_string(text).render(
        parts=parts,
        scale=scale,
        row_count=len(rows),
        tallies=tallies([claim for part in parts for claim in part.claims]),
        kinds=NAMES,
        # Written by this package, and escaped already: the only text taken as it is.
        style=markupsafe.Markup(style),
        draw=lambda picture: markupsafe.Markup(picture.svg),
        swatch=lambda key: markupsafe.Markup(swatch(key)),
        unbroken=lambda text: markupsafe.Markup(unbroken(text)),
        style_hash=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        places=places(rows),
    )
