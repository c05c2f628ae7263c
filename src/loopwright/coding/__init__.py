"""Loops in which programs edit files: workspaces, coding agents and sealed checks."""
