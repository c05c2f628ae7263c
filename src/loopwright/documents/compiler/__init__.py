"""A native document becomes loops, workflows and steps."""
