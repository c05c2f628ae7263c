"""Deliverers: one module per engine."""
