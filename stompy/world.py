"""The seam to the world: threads, clocks, random numbers, sockets, processes, files.

Every other module takes these modules of the standard library from here, by their own names, and
`tests/test_architecture.py` checks it. A simulation puts others in their place: the attributes of stompy's modules that
are these modules are all that it has to replace. A program has the standard library itself, so that no call costs more.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import fcntl
    import mmap
    import os
    import queue
    import random
    import secrets
    import select
    import selectors
    import shutil
    import signal
    import socket
    import sqlite3
    import subprocess
    import tempfile
    import threading
    import time
    import uuid
    from types import ModuleType

__all__ = [
    "fcntl",
    "mmap",
    "os",
    "queue",
    "random",
    "secrets",
    "select",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "sqlite3",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "uuid",
]


def __getattr__(name: str) -> ModuleType:
    """Import a module at its first use, as most programs need few of them.

    Raises:
        ImportError: this platform or this build of Python lacks it.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = globals()[name] = importlib.import_module(name)
    return module
