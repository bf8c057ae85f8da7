"""How many claims hold, counted apart by whose they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dfwtrace.experiments.exhibits import Claim, Kind

#: What the claims of each kind are called, all of them and one alone.
NAMES: dict[Kind, tuple[str, str]] = {
    "paper": ("The paper’s claims", "the paper’s"),
    "stand-in": ("Its claims, said of a stand-in", "said of a stand-in"),
    "beyond": ("Claims beyond the paper", "beyond the paper"),
}


class Tally(NamedTuple):
    """What became of the claims of one kind.

    Attributes
    ----------
    name : str
        In words.
    held, measured, unmeasured : int
        How many hold, of how many that were measured, and how many could not be.
    """

    name: str
    held: int
    measured: int
    unmeasured: int


def tallies(claims: Sequence[Claim]) -> list[Tally]:
    """A tally for each kind that there is.

    Examples
    --------
    >>> claims = [Claim("A.", "1.", True), Claim("B.", "2.", False), Claim("C.", "–.", None)]
    >>> [tally[1:] for tally in tallies(claims)]
    [(1, 2, 1)]
    """
    made = []
    for kind, (name, _) in NAMES.items():
        verdicts = [claim.holds for claim in claims if claim.kind == kind]
        if verdicts:
            unmeasured = verdicts.count(None)
            made.append(Tally(name, verdicts.count(True), len(verdicts) - unmeasured, unmeasured))
    return made
