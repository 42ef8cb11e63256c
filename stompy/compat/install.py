"""Let `import stomp` find stompy.compat."""

from __future__ import annotations

import operator
import runpy
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from stompy.world import os

_NAME = "stompy.compat"
_MODULES = (
    "adapter", "adapter.ws", "connect", "constants", "exception", "listener", "log", "logging", "protocol", "transport",
    "utils",
)  # fmt: skip

_PATH = str(Path(__file__).with_name("path"))
"""A folder of `sys.path` in which `import stomp` finds a package that installs stompy.compat."""


def _comparison(compare: Callable[[Any, Any], bool]) -> Any:
    def method(self: Release, other: Any) -> bool:
        numbers = tuple(map(int, self.split(".")))
        return compare(numbers, other) if isinstance(other, tuple) else compare(str(self), other)

    return method


class Release(str):
    """The release that stompy.compat stands in for; can also be compared with tuples, as before stomp.py 8."""

    __slots__ = ()

    __eq__ = _comparison(operator.eq)
    __ne__ = _comparison(operator.ne)
    __lt__ = _comparison(operator.lt)
    __le__ = _comparison(operator.le)
    __gt__ = _comparison(operator.gt)
    __ge__ = _comparison(operator.ge)
    __hash__ = str.__hash__


RELEASE = Release("9.0.0")


def install() -> None:
    """Make stompy.compat importable as `stomp`, in place of any stomp.py; call it before the first `import stomp`.

    Processes that multiprocessing starts, by any method, find it too.
    """
    if _PATH not in sys.path:
        sys.path.insert(0, _PATH)
    sys.modules["stomp"] = import_module(_NAME)
    for name in _MODULES:
        sys.modules[f"stomp.{name}"] = import_module(f"{_NAME}.{name}")


def tuple_version() -> None:
    """Make `__version__` a tuple of numbers."""
    package = import_module(_NAME)
    release = str(vars(package)["__version__"])
    if release.count(".") == 2:
        vars(package)["__version__"] = tuple(map(int, release.split(".")))


def run(arguments: list[str]) -> None:
    """Run a program, or with `-m` a module, for which `import stomp` finds stompy.compat; in its child processes too.

    Args:
        arguments: the program and its arguments.

    Raises:
        SystemExit: there is no program.
    """
    as_module = arguments[:1] == ["-m"]
    sys.argv = arguments[1:] if as_module else arguments
    if not sys.argv:
        raise SystemExit("usage: python -m stompy.compat PROGRAM.py [ARGUMENT ...]")
    if not getattr(sys.flags, "safe_path", False):  # else Python has put no folder first that could be replaced
        sys.path[0] = str(Path.cwd() if as_module else Path(sys.argv[0]).resolve().parent)
    install()
    os.environ["PYTHONPATH"] = os.pathsep.join([_PATH, *filter(None, [os.environ.get("PYTHONPATH")])])
    # If the program is pytest, it would warn that it cannot rewrite what is imported already.
    sys.modules["stompy"].__doc__ = f"{sys.modules['stompy'].__doc__}\nPYTEST_DONT_REWRITE"
    if as_module:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")
