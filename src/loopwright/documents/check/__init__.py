"""The plan of a document, the notes on it, and the approval of its user."""
