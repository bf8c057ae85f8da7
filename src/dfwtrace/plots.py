"""Deprecated: `dfwtrace.plotting` under its former name."""

import warnings

from dfwtrace.plotting import ConvergenceDisplay, PathDisplay, SpectrumDisplay

__all__ = ["ConvergenceDisplay", "PathDisplay", "SpectrumDisplay"]

warnings.warn("dfwtrace.plots: use dfwtrace.plotting.", DeprecationWarning, stacklevel=2)
