"""Scores, verdicts and answers, read from what a model writes."""
