"""Real endpoints, behind the client library."""
