"""Print the corpus' table from the rows of the last run in a file, or from records of ours."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.corpus.table import markdown

if __name__ == "__main__":
    print(markdown(Path(sys.argv[1])))
