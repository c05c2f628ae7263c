"""The command line and the page, and what both use."""
