"""Adapters: connections over other transports than TCP."""
