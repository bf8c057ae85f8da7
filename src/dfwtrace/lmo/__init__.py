"""Linear minimisation oracles: the pair (u, v) that an epoch moves towards, and schedules K(t)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dfwtrace.lmo.baselines import SVA, Naive
from dfwtrace.lmo.power import Lanczos, Power
from dfwtrace.lmo.schedules import (
    Adaptive,
    Constant,
    Linear,
    Log,
    Schedule,
    TheoremLinear,
    TheoremLog,
)
from dfwtrace.lmo.setting import LMO, Constants, Oracle, RememberingOracle, Setting
from dfwtrace.validation import describe

# fmt: off
__all__ = [
    "LMO", "SVA", "Adaptive", "Constant", "Constants", "Lanczos", "Linear", "Log", "Naive",
    "Oracle", "Power", "RememberingOracle", "Schedule", "Setting", "TheoremLinear", "TheoremLog",
    "resolve",
]
# fmt: on

_BY_NAME: dict[str, Callable[[float], LMO]] = {
    "power-1": lambda log_factor: Power(Constant(1)),
    "power-2": lambda log_factor: Power(Constant(2)),
    "power-log": lambda log_factor: Power(Log(log_factor)),
    "power-linear": lambda log_factor: Power(Linear()),
    "naive": lambda log_factor: Naive(),
    "sva": lambda log_factor: SVA(),
    "lanczos": lambda log_factor: Lanczos(),
}


def resolve(lmo: str | LMO, log_factor: float = 1.0) -> LMO:
    """Find the oracle of that name, or return the object itself.

    Parameters
    ----------
    lmo : str or LMO
    log_factor : float, default=1.0
        c in the K(t) = ⌊1 + c log t⌋ of "power-log".

    Returns
    -------
    LMO

    Examples
    --------
    >>> resolve("power-2")
    Power(schedule=Constant(k=2), start='random')
    """
    if isinstance(lmo, str):
        if lmo not in _BY_NAME:
            raise ValueError(f"lmo must be one of {', '.join(_BY_NAME)}, got {describe(lmo)}.")
        return _BY_NAME[lmo](log_factor)
    checked: Any = lmo
    if isinstance(lmo, type) or not callable(getattr(checked, "begin", None)):
        raise TypeError(
            f"lmo must be a name or an object such as lmo.Power(), got {describe(lmo)}."
        )
    return lmo
