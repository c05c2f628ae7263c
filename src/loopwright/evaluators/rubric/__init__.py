"""A model rates weighted criteria."""
