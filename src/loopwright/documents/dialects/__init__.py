"""Foreign dialects: each becomes a native document."""
