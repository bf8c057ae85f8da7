"""A run as one page that people can show each other."""

from dfwtrace.report.content import (
    Communication,
    DataFacts,
    Outcome,
    Radii,
    Report,
    Settings,
    Worst,
)
from dfwtrace.report.page import write_report

__all__ = [
    "Communication",
    "DataFacts",
    "Outcome",
    "Radii",
    "Report",
    "Settings",
    "Worst",
    "write_report",
]
