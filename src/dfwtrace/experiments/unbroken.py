"""Text in which a name and its number stay on one line."""

from __future__ import annotations

import html
import re

# Longer pieces are sentences, which have to break somewhere.
_SHORT = 22
_ENDS = re.compile(r"(?<=[,;:.]) ")


def unbroken(text: str) -> str:
    """HTML in which short pieces with a number, between commas and the like, do not break.

    Examples
    --------
    >>> unbroken("At d < 9: DFW-1 0.027.")
    '<span class="whole">At d &lt; 9:</span> <span class="whole">DFW-1 0.027.</span>'
    """
    return " ".join(_piece(piece) for piece in _ENDS.split(text))


def _piece(piece: str) -> str:
    whole = len(piece) <= _SHORT and any(letter.isdigit() for letter in piece)
    escaped = html.escape(piece)
    return f'<span class="whole">{escaped}</span>' if whole else escaped
