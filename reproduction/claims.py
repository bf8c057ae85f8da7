"""Claims: a sentence of the paper, what was measured, and whether it holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Literal

from reproduction.rows import MissingRowError

#: Whose claim it is: the paper's; the paper's, about data or machines that stand in for its own;
#: or one beyond the paper.
Kind = Literal["paper", "stand-in", "beyond"]
KINDS: dict[Kind, str] = {
    "paper": "the paper's",
    "stand-in": "about a stand-in",
    "beyond": "beyond the paper",
}
#: Measures a claim on the rows of an experiment: what was found, in words, and whether it holds.
Judged = tuple[str, bool]
Judge = Callable[[Any], Judged]


@dataclass(frozen=True)
class Claim:
    """A claim; `reason` says why it does not hold here, as far as that is known."""

    text: str
    judge: Judge
    reason: str = ""
    kind: Kind = "paper"
    measured: str = ""
    holds: bool | None = None

    def judged(self, rows: Any) -> Claim:
        """Return the claim with what the rows say; not measured if one of them is missing."""
        try:
            measured, holds = self.judge(rows)
        except MissingRowError as missing:
            return replace(self, measured=str(missing))
        return replace(self, measured=measured, holds=bool(holds))

    @property
    def verdict(self) -> str:
        """In a word or two."""
        return {True: "holds", False: "does not hold here", None: "not measured"}[self.holds]

    @property
    def explained(self) -> str:
        """What was measured, and why the claim does not hold if it does not."""
        return f"{self.measured} {self.reason}" if self.holds is False else self.measured


def claim(claims: list[Claim], reason: str, kind: Kind = "paper") -> Callable[[Judge], Judge]:
    """Add the decorated function to a list as the judge of a claim, which is its docstring."""

    def add(judge: Judge) -> Judge:
        claims.append(Claim(judge.__doc__ or "", judge, reason, kind))
        return judge

    return add


def counts(claims: Sequence[Claim]) -> dict[str, str]:
    """Return how many claims of each kind hold, in words."""
    made = {}
    for kind, name in KINDS.items():
        verdicts = [claim.holds for claim in claims if claim.kind == kind]
        if verdicts:
            unmeasured = verdicts.count(None)
            made[name] = f"{verdicts.count(True)} of {len(verdicts) - unmeasured} hold"
            made[name] += f", {unmeasured} not measured" if unmeasured else ""
    return made


def listed(values: Mapping[str, float], style: str = ".3g") -> str:
    """Return numbers by name in one line; a time that never came is "never".

    Examples
    --------
    >>> listed({"Naive": 0.25, "DFW-1": 1434.2, "SVA": float("inf")})
    'Naive 0.25, DFW-1 1430, SVA never'
    """

    def text(value: float) -> str:
        shown = "never" if value == inf else f"{value:{style}}"
        return f"{float(shown):.0f}" if "e+0" in shown else shown

    return ", ".join(f"{name} {text(value)}" for name, value in values.items())
