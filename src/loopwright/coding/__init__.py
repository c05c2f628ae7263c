"""Coding loops: coding agents as steps."""
