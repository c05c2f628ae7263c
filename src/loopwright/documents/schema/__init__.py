"""The native document: its models, its validation and its JSON Schema."""
