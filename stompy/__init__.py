"""A synchronous, threaded STOMP 1.0/1.1/1.2 client."""

from __future__ import annotations

__version__ = "0.1.0"

__all__ = ["__version__"]
