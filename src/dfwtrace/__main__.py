"""``python -m dfwtrace`` is ``dfwtrace``."""

from dfwtrace.cli import main

if __name__ == "__main__":
    main()
