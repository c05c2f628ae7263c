"""YAML text to values with positions, within limits; no meaning."""
