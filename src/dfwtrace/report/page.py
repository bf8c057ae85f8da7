"""From a report's content to a page."""

from __future__ import annotations

import base64
import hashlib
import os
from importlib.resources import files

import numpy as np

from dfwtrace._typing import FloatArray
from dfwtrace.files.atomic import atomic_write
from dfwtrace.report import pictures
from dfwtrace.report.content import Report
from dfwtrace.report.numbers import duration, name, number, size
from dfwtrace.validation import describe

#: Rows of the table of classes or tasks, at the most.
MOST_WORST = 50


def write_report(path: str | os.PathLike[str], content: Report) -> None:
    """Write a report as one HTML page that needs nothing else.

    The page loads nothing and runs nothing: its pictures and styles are inside it, and its
    Content-Security-Policy forbids all else. It appears whole or not at all.

    Parameters
    ----------
    path : str or path
        A file; what it held is replaced.
    content : Report

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import dfwtrace as dt
    >>> from dfwtrace.report import Report, write_report
    >>> X, Y, _ = dt.datasets.make_multitask(n=200, d=10, m=4, rank=2, seed=0)
    >>> result = dt.solve(dt.LeastSquares(), X, Y, radius=1.0, epochs=5)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = Path(folder) / "report.html"
    ...     write_report(page, Report.of_result(result, task="regression", radius=1.0))
    ...     page.read_text("utf-8").startswith("<!doctype html>")
    True
    """
    text = render(content)
    with atomic_write(path) as file:
        file.write(text.encode("utf-8"))


def render(content: Report) -> str:
    """The page as text."""
    if not isinstance(content, Report):
        raise TypeError(f"content must be a Report, got {describe(content)}.")
    try:
        import jinja2
        import markupsafe
    except ImportError as error:
        raise ImportError("a report needs jinja2: pip install 'dfwtrace[report]'.") from error

    own = files("dfwtrace.report")
    style = page_style()
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(number=number, duration=duration, size=size, shown=name)
    template = environment.from_string(own.joinpath("page.html.jinja").read_text("utf-8"))
    return template.render(
        report=content,
        # Written by this package and escaped by the XML writer: the only text taken as it is.
        style=markupsafe.Markup(style),
        draw=lambda picture: markupsafe.Markup(picture.svg),
        style_hash=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        most_worst=MOST_WORST,
        convergence=pictures.convergence(content),
        spectrum=pictures.spectrum(content),
        traffic=pictures.traffic(content),
        radii=None if content.path is None else pictures.radii(content.path),
        trace_norm=float(content.spectrum.sum()),
        leading=_leading(content.spectrum),
    )


def page_style() -> str:
    """The styles of a page with charts."""
    own = files("dfwtrace.report")
    return "\n".join(own.joinpath(name).read_text("utf-8") for name in ("chart.css", "page.css"))


def _leading(spectrum: FloatArray) -> str:
    """How many singular values make up nine tenths of their sum; empty if that says nothing."""
    total = spectrum.sum()
    if spectrum.size < 2 or not (np.isfinite(total) and total > 0.0):
        return ""
    count = 1 + int(np.searchsorted(np.cumsum(spectrum), 0.9 * total))
    return f"in the first {count}" if count > 1 else "in the first one"
