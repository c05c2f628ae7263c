"""Evaluators: what turns the output of a step into a score, a verdict or a checked list."""
