"""Linear minimisation oracles: the pair (u, v) that an epoch moves towards, and schedules K(t)."""

from __future__ import annotations

from dfwtrace.lmo.oracles import LMO, SVA, Lanczos, Naive, Oracle, Power, RememberingOracle
from dfwtrace.lmo.schedules import (
    Adaptive,
    Constant,
    Constants,
    Linear,
    Log,
    Schedule,
    Setting,
    TheoremLinear,
    TheoremLog,
)
from dfwtrace.validation import describe

# fmt: off
__all__ = [
    "LMO", "SVA", "Adaptive", "Constant", "Constants", "Lanczos", "Linear", "Log", "Naive",
    "Oracle", "Power", "RememberingOracle", "Schedule", "Setting", "TheoremLinear", "TheoremLog",
    "resolve",
]
# fmt: on


def resolve(lmo: str | LMO, log_factor: float = 1.0) -> LMO:
    """Find the oracle of that name, or return the object itself.

    Parameters
    ----------
    lmo : str or LMO
        As for `dfwtrace.solve`.
    log_factor : float, default=1.0
        c in the K(t) = ⌊1 + c log t⌋ of "power-log".

    Returns
    -------
    LMO
        The oracle's settings.

    Examples
    --------
    >>> resolve("power-2")
    Power(schedule=Constant(k=2), start='random')
    """
    if isinstance(lmo, str):
        by_name: dict[str, LMO] = {
            "power-1": Power(Constant(1)),
            "power-2": Power(Constant(2)),
            "power-log": Power(Log(log_factor)),
            "power-linear": Power(Linear()),
            "naive": Naive(),
            "sva": SVA(),
            "lanczos": Lanczos(),
        }
        if lmo not in by_name:
            raise ValueError(f"lmo must be one of {', '.join(by_name)}, got {describe(lmo)}.")
        return by_name[lmo]
    if isinstance(lmo, type) or not callable(getattr(lmo, "begin", None)):
        raise TypeError(f"lmo must be a name or an object like lmo.Power(), got {describe(lmo)}.")
    return lmo
