"""Spans of requests. ``setup`` decides whether there are any, ``otel`` alone loads the OpenTelemetry SDK."""
