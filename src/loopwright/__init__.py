"""Loops that run until they are satisfied."""
