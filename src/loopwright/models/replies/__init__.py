"""What a model wrote, read once: its own words, and a value that fits a schema."""
