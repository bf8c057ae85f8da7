"""The claims as a table for the documentation."""

from __future__ import annotations

from collections.abc import Sequence

from dfwtrace.experiments.page import Part
from dfwtrace.experiments.tallies import NAMES


def claims_table(parts: Sequence[Part]) -> str:
    """Markdown with a row for each claim."""
    lines = ["| | claim | measured | verdict |", "|---|---|---|---|"]
    for part in parts:
        for claim in part.claims:
            why = f" {claim.reason}" if claim.holds is False and claim.reason else ""
            whose = "" if claim.kind == "paper" else f" ({NAMES[claim.kind][1]})"
            about = f"{part.title.partition(':')[0]}{whose}"
            cells = (about, claim.text, claim.measured + why, claim.verdict)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"
