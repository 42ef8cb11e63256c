"""Strikes a Python of Spark between the moment that a segment has its name and its ACK, when a test asks for it.

A test leaves a file `<spool>.strike` with the name of a signal; whoever next gives a segment of that spool its name
takes the file away and sends itself the signal. Python imports this module by itself where its folder is on the path.
"""

from __future__ import annotations

import os
import signal

_replace = os.replace


def _replaced(source: str, target: str) -> None:
    _replace(source, target)
    folder, name = os.path.split(str(target))
    if not name.startswith("seg-"):
        return
    order = os.path.dirname(folder) + ".strike"
    try:
        with open(order) as file:
            word = file.read().strip()
        os.unlink(order)
    except OSError:
        return
    os.kill(os.getpid(), getattr(signal, word))


os.replace = _replaced  # type: ignore[assignment]
