"""Workflows of Archon: `nodes` with `depends_on`, whose prompts are tasks for coding agents, and loops until a signal."""
