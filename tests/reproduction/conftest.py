"""`reproduction` and `benchmarks` are run from the checkout and never installed."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
