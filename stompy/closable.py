"""Objects that a `with` block closes."""

from __future__ import annotations

from typing import TypeVar

Closed = TypeVar("Closed", bound="Closable")


class Closable:
    """Base of an object that a `with` block closes at its end, however it ends."""

    def close(self) -> object:
        """End the object; to be overridden."""
        raise NotImplementedError

    def __enter__(self: Closed) -> Closed:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
