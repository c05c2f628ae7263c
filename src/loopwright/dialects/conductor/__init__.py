"""Workflows of Conductor: `agents` with `routes`, an `entry_point` and limits."""
