"""Two functions for lists of prices."""
