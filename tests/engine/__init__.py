"""Tests of the engine: what a loop means, in virtual time."""
