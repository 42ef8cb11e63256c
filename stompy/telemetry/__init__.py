"""Traces and metrics with OpenTelemetry, and metrics with Prometheus's client."""
