"""Test commands as evaluators: their reports, the files that they depend on, and their verdicts."""
