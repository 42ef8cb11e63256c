"""Let `import stomp` find stompy.compat."""

from __future__ import annotations

import runpy
import sys
from importlib import import_module
from pathlib import Path

_NAME = "stompy.compat"
_MODULES = (
    "adapter",
    "adapter.ws",
    "connect",
    "constants",
    "exception",
    "listener",
    "log",
    "logging",
    "protocol",
    "transport",
    "utils",
)


def install() -> None:
    """Make stompy.compat importable as `stomp`, in place of any stomp.py; call it before the first `import stomp`."""
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
    """Run a program, or with `-m` a module, for which `import stomp` finds stompy.compat.

    Args:
        arguments: the program and its arguments.

    Raises:
        SystemExit: there is no program.
    """
    as_module = arguments[:1] == ["-m"]
    sys.argv = arguments[1:] if as_module else arguments
    if not sys.argv:
        raise SystemExit("usage: python -m stompy.compat PROGRAM.py [ARGUMENT ...]")
    install()
    sys.path[0] = str(Path.cwd() if as_module else Path(sys.argv[0]).resolve().parent)
    if as_module:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")
