"""The seam to the world: threads, clocks, random numbers, sockets, processes, files.

Every other module takes these modules of the standard library from here, by their own names, and
`tests/test_architecture.py` checks it. A simulation puts others in their place: the attributes of stompy's modules that
are these modules are all that it has to replace. A program has the standard library itself, so that no call costs more.
"""

from __future__ import annotations

import importlib
import sys

TYPE_CHECKING = False  # importing `typing` costs more than all the rest
if TYPE_CHECKING:
    import fcntl as fcntl
    import mmap as mmap
    import os as os
    import queue as queue
    import random as random
    import secrets as secrets
    import select as select
    import selectors as selectors
    import shutil as shutil
    import signal as signal
    import socket as socket
    import sqlite3 as sqlite3
    import subprocess as subprocess
    import tempfile as tempfile
    import threading as threading
    import time as time
    import uuid as uuid
    from types import ModuleType


def __getattr__(name: str) -> ModuleType:
    """Import a module of the standard library at its first use, as most programs need few of them.

    Raises:
        ImportError: this platform or this build of Python lacks it.
    """
    if name not in sys.stdlib_module_names:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = globals()[name] = importlib.import_module(name)
    return module
