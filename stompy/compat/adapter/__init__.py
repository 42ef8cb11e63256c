"""Adapters: connections over something else than TCP."""
