"""The command line: ``dfwtrace fit``, ``predict``, ``evaluate`` and the rest."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys


def main() -> None:
    """Run the command of ``sys.argv``."""
    # Importing takes a second or two; until the commands are there, Ctrl-C ends the process.
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        # At once: an exception could be lost in a callback of a module that is being imported.
        end = b"Interrupted: nothing was saved.\n"
        signal.signal(signal.SIGINT, lambda *_: (os.write(2, end), os._exit(130)))
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the caller
            nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # open to the end
            setattr(sys, name, nowhere)
        elif hasattr(stream, "reconfigure"):  # a terminal without ² shows a question mark
            stream.reconfigure(errors="replace")
    for package in ("typer", "pyarrow", "jinja2"):
        if importlib.util.find_spec(package) is None:
            sys.exit(f"Error: the command line needs {package}: pip install 'dfwtrace[cli]'.")
    from dfwtrace.cli.app import run

    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run(prog_name="dfwtrace")
