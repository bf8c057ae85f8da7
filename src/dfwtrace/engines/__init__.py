"""Where shards live, and rounds over them. Engines know nothing of the maths."""

from dfwtrace.engines.engine import Engine, Workers
from dfwtrace.engines.ledger import Ledger, Traffic
from dfwtrace.engines.local import LocalEngine, LocalWorkers
from dfwtrace.engines.tree import TreeSum

__all__ = ["Engine", "Ledger", "LocalEngine", "LocalWorkers", "Traffic", "TreeSum", "Workers"]
