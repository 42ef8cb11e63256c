"""Kills a Python of Spark at the moment that a file of a spool has got its name, when a test asks for it.

A test leaves a file `<spool>.kill-<beginning>` with the name of a signal or of an exception; whoever next gives a
file of that spool a name with that beginning takes the order away and sends itself the signal, or raises the
exception. Where there is a file `<spool>.reads`, it gets the name of each segment that is read.

Python imports this module by itself where its folder is on the path.
"""

from __future__ import annotations

import builtins
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

BEGINNINGS = ("seg-", "low", "done")


def _killed(move: Callable[..., None]) -> Callable[..., None]:
    def moved(source: str, target: str, **more: Any) -> None:
        move(source, target, **more)
        folder, name = os.path.split(str(target))
        for beginning in BEGINNINGS:
            if name.startswith(beginning):
                _obey(f"{folder}.kill-{beginning}")

    return moved


def _obey(order: str) -> None:
    try:
        with open(order) as file:
            word = file.read().strip()
        os.unlink(order)
    except OSError:
        return
    if word.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, word))
    else:
        raise getattr(builtins, word)("killed")


os.replace = _killed(os.replace)
os.link = _killed(os.link)


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and arguments[1] == "r":
        folder, name = os.path.split(str(arguments[0]))
        if name.startswith("seg-") and os.path.exists(f"{folder}.reads"):
            with open(f"{folder}.reads", "a") as reads:
                reads.write(f"{name}\n")


sys.addaudithook(_note)
