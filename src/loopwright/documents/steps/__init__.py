"""Steps that only documents need."""
