"""What became of a frame with a receipt, in a word."""

from __future__ import annotations

import stompy


def outcome_of(receipt: stompy.Receipt) -> str:
    """Return `"pending"`, `"confirmed"`, or the outcome that the error of the receipt has."""
    if not receipt.done():
        return "pending"
    error = receipt.exception(timeout=0)
    return "confirmed" if error is None else str(getattr(error, "outcome", "unknown"))
