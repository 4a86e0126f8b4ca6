"""Telemetry: what workers published in the last fifteen minutes."""
