"""The command line: ``dfwtrace fit``, ``predict``, ``evaluate`` and the rest."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command of ``sys.argv``."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that knows no ² shows a question mark
            stream.reconfigure(errors="replace")
    from dfwtrace.cli.app import app

    app(prog_name="dfwtrace")
