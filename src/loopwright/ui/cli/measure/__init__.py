"""`measure`: figures of judges and limits, from cases and recorded runs. Each command is a module."""
