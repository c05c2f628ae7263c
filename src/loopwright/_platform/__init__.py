"""The differences between operating systems: file locks, and groups of processes."""
