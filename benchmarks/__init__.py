"""Speed and memory as ratios, both sides measured in one run: ``python -m benchmarks``."""
