"""Foreign dialects: each becomes a native document, and what only its documents mean is here."""
