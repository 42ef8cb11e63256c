"""Raise in the main thread where a signal handler may: at every opcode of stompy's own code, one after the other.

CPython looks for signals where a function begins, after a call, and where a loop goes back (`eval_breaker` in its
`ceval.c`, the same from 3.10 to 3.13), and what the handler then raises belongs to the instruction just executed. Hence
no signal is delivered at an instruction with none of these between it and the edge of a `try` or `with` that was passed
before it: the loads between the end of a block and the call that releases what the block held, or between the beginning
of a `try` and its first call. These, where no Python program could be safe, are left out; everything else is struck.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import stompy

_HOME = str(Path(stompy.__file__).parent)
_EDGES = frozenset({"POP_BLOCK", "SETUP_FINALLY", "SETUP_WITH"})
"""What opens and closes a protected range in 3.10; later versions have a table of them."""


@functools.cache
def _instructions(code: CodeType) -> dict[int, tuple[bool, bool, object]]:
    """Return for each offset whether signals are looked for there, whether it is an edge, and its handler."""
    table: Any = getattr(dis.Bytecode(code), "exception_entries", ())
    found: dict[int, tuple[bool, bool, object]] = {}
    for one in dis.get_instructions(code):
        handler = next((entry.target for entry in table if entry.start <= one.offset < entry.end), None)
        found[one.offset] = _looks(one.opname), one.opname in _EDGES, handler
    return found


def _looks(name: str) -> bool:
    """Whether CPython looks for signals in an instruction; too often rather than too seldom."""
    if name.startswith(("CALL", "RESUME", "YIELD", "SEND")):
        return True
    if "JUMP_BACKWARD" in dis.opmap:  # since 3.11
        return "JUMP_BACKWARD" in name and "NO_INTERRUPT" not in name
    return "JUMP" in name and name != "JUMP_FORWARD"


def _in_finalizer(frame: FrameType | None) -> bool:
    """Whether a `__del__` is running: Python prints exceptions raised there, and they reach no caller."""
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


class Strike:
    """Raises once, at one of the places of a call where a signal may strike.

    Args:
        place: which of them, from 0 on; `None` only counts them.
        error: what is raised; or it sends a signal, whose handler may raise, and returns `None`.
        within: the beginnings of the files whose code is struck.
    """

    def __init__(
        self,
        place: int | None,
        error: Callable[[], BaseException | None] = KeyboardInterrupt,
        *,
        within: tuple[str, ...] = (_HOME,),
    ) -> None:
        self._within = within
        self._place = place
        self._error = error
        self._frames: dict[FrameType, tuple[bool, tuple[bool, bool, object] | None]] = {}
        self.places = 0
        """How many places there were so far."""
        self.raised: BaseException | None = None
        """What came of it."""
        self.where = ""
        """The place that was struck; empty before."""

    def run(self, work: Callable[[], object]) -> bool:
        """Do the work; return whether it was struck."""
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            work()
        except BaseException as error:
            if not self.where:
                raise
            self.raised = error.with_traceback(None)
        finally:
            sys.settrace(before)
            self._frames.clear()
        return bool(self.where)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        if self.where or not frame.f_code.co_filename.startswith(self._within) or _in_finalizer(frame):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        self._frames.setdefault(frame, (False, None))
        return self._follow

    def _follow(self, frame: FrameType, event: str, argument: Any) -> Any:
        quiet, last = self._frames.get(frame, (False, None))
        if event == "exception":
            self._frames[frame] = True, None
        if event != "opcode":
            return self._follow
        this = _instructions(frame.f_code)[frame.f_lasti]
        if last is not None:
            looked, edge, handler = last
            if edge or handler != this[2]:
                quiet = True
            elif looked:
                quiet = False
        self._frames[frame] = quiet, this
        if not quiet:
            if self.places == self._place and not self.where:
                place = f"{frame.f_code.co_filename.removeprefix(_HOME)}:{frame.f_lineno}"
                self.where = f"{place} {dis.opname[frame.f_code.co_code[frame.f_lasti]]} in {frame.f_code.co_name}"
                error = self._error()
                if error is not None:
                    raise error
                return None
            self.places += 1
        return self._follow
