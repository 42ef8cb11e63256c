"""Whether a loop over a generator was left by `break` or by an exception.

The interpreter closes the generator in both cases, at once, and does not say which it was: `sys.exc_info` does not have
the exception yet. But the exception has noted the frame of the loop in its traceback before it leaves it. So the frame
has a reference more than after `break`, `return` or `next(iter(...))`.

Other references to the frame, such as those of a debugger or of a saved traceback, look like an exception too. That is
the safe error: the message of the loop is then redelivered, not lost.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator


def left_by_exception(closing: GeneratorExit) -> bool:
    """Return whether an exception leaves the loop; called by a generator with what closes it."""
    # A context means that `close` was called while an exception was handled, such as by `contextlib.closing`.
    return closing.__context__ is not None or _references() > _AFTER_BREAK


def _references() -> int:
    """Return how many references there are to the frame of the loop: behind this one, its caller and the generator."""
    try:
        return sys.getrefcount(sys._getframe(3))
    except ValueError:  # the interpreter is about to end
        return sys.maxsize


def _after_break() -> int:
    found: list[int] = []

    def close(closing: GeneratorExit) -> None:
        found.append(_references())

    def numbers() -> Iterator[int]:
        try:
            yield 1
        except GeneratorExit as closing:
            close(closing)
            raise

    for _ in numbers():
        break
    return found[0]


_AFTER_BREAK = _after_break()
