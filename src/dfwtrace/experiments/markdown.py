"""The claims as a table for the documentation."""

from __future__ import annotations

from collections.abc import Sequence

from dfwtrace.experiments.page import Part


def claims_table(parts: Sequence[Part]) -> str:
    """Markdown with a row for each claim."""
    lines = ["| | claim | measured | verdict |", "|---|---|---|---|"]
    for part in parts:
        for claim in part.claims:
            why = f" {claim.reason}" if claim.holds is False and claim.reason else ""
            cells = (part.title.partition(":")[0], claim.text, claim.measured + why, claim.verdict)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"
