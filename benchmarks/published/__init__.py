"""Benches that others can repeat: a plain seeded program in place of an agent, without a key or a network."""
