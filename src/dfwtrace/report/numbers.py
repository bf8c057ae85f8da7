"""Numbers and names as a reader wants to see them."""

from __future__ import annotations

import math
import unicodedata
from typing import SupportsFloat

import numpy as np

#: Longer names are cut: a page is no place for a whole document.
LONGEST_NAME = 160

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_REPLACEMENT = "\ufffd"


def number(value: SupportsFloat | None, digits: int = 4) -> str:
    """Return a number in a few digits; a dash where there is none.

    Examples
    --------
    >>> number(1234567), number(0.98765), number(2.5e-7), number(float("nan"))
    ('1,234,567', '0.9877', '2.5×10⁻⁷', '—')
    """
    if value is None or (isinstance(value, float | np.floating) and math.isnan(value)):
        return "—"
    if isinstance(value, int | np.integer):
        return f"{int(value):,}".replace("-", "−")
    value = float(value)
    if math.isinf(value):
        return "∞" if value > 0.0 else "−∞"
    text = f"{value:.{digits}g}"
    if "e" in text:
        mantissa, exponent = text.split("e")
        if int(exponent) < 0 or abs(value) >= 1e9:
            return f"{mantissa}×10{str(int(exponent)).translate(_RAISED)}".replace("-", "−")
        text = f"{value:,.0f}"
    elif abs(value) >= 1000.0:
        text = f"{float(text):,.{max(len(text.partition('.')[2]), 0)}f}"
    return text.replace("-", "−")


def counted(count: int, noun: str) -> str:
    """Return a count and its noun.

    Examples
    --------
    >>> counted(1, "epoch"), counted(2000, "epoch")
    ('1 epoch', '2,000 epochs')
    """
    return f"{number(count)} {noun}" + ("" if count == 1 else "s")


def duration(seconds: float) -> str:
    """Return seconds as people say them.

    Examples
    --------
    >>> duration(0.0042), duration(12.34), duration(3725.0)
    ('4.2 ms', '12.3 s', '1 h 2 min')
    """
    if not math.isfinite(seconds):
        return number(seconds)
    if seconds == 0.0:
        return "0 s"
    if seconds < 0.9995e-3:
        return f"{number(1e6 * seconds, 3)} µs"
    if seconds < 0.9995:
        return f"{number(1e3 * seconds, 3)} ms"
    if seconds < 59.95:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60} min"


def size(n_bytes: float) -> str:
    """Return bytes in the unit that fits.

    Examples
    --------
    >>> size(0), size(1536), size(3 * 2**30)
    ('0 B', '1.5 KiB', '3 GiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n_bytes < 1024.0:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1024.0
    return f"{number(float(n_bytes), 3)} TiB"


def name(text: object) -> str:
    """Return a name that can be shown: no control or half characters, not without end.

    Whatever would change the order of the text around it is left in: the page isolates each name.

    Examples
    --------
    >>> name("a\\x00b\\nc"), name(7), name("")
    ('a\ufffdb c', '7', '')
    """
    shown = str(text)
    cut = shown[:LONGEST_NAME]
    if len(shown) > LONGEST_NAME:
        cut = cut[:-1] + "…"
    return clean(cut)


def clean(text: str) -> str:
    """Return text without the characters that HTML and XML forbid, in one line.

    Examples
    --------
    >>> clean("one\\n two\\x1b")
    'one  two\ufffd'
    """
    return "".join(_visible(character) for character in text).strip()


def _visible(character: str) -> str:
    if character.isspace():
        return " "
    # Cc: control characters. Cs: halves of surrogate pairs, which no file can hold. Cn has the
    # noncharacters that HTML and XML forbid.
    return _REPLACEMENT if unicodedata.category(character) in ("Cc", "Cs", "Cn") else character
