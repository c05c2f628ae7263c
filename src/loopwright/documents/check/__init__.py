"""What a document would run, what is odd about it, and what its user approves."""
