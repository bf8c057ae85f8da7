"""Model files and checkpoints: written whole or not at all, and never run."""
