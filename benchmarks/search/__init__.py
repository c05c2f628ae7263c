"""Figures of search and data sets: simulators with the real rules. `python -m benchmarks.search` runs all of them."""
