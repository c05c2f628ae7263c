"""`worker`: workers and the queues and schedules that they serve. Each command is a module."""
