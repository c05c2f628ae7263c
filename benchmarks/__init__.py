"""Benchmarks: ratios against a bare equivalent, measured in the same run."""
