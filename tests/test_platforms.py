"""On systems that lack what Linux has, every module can be imported, and a message sent and received."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parent.parent

HIDDEN = {
    "win32": {
        "modules": ["fcntl", "termios", "pwd", "grp", "resource", "tty", "pty", "curses", "readline", "syslog"],
        "socket": ["AF_UNIX", "SCM_RIGHTS", "TCP_USER_TIMEOUT", "MSG_NOSIGNAL", "MSG_DONTWAIT"],
        "os": [
            *["fork", "forkpty", "register_at_fork", "getuid", "geteuid", "getpgid", "killpg", "setsid", "uname"],
            *["sched_getaffinity", "posix_fallocate", "fchmod", "chown", "mkfifo", "pread", "sysconf", "statvfs"],
        ],
        "signal": ["SIGHUP", "SIGUSR1", "SIGUSR2", "SIGKILL", "SIGALRM", "SIGCHLD", "pthread_kill", "setitimer"],
        "select": ["poll", "epoll", "kqueue"],
        "faulthandler": ["register", "unregister"],
    },
    "darwin": {
        "modules": [],
        "socket": ["TCP_KEEPIDLE", "TCP_USER_TIMEOUT", "MSG_NOSIGNAL", "SOCK_CLOEXEC", "SOCK_NONBLOCK"],
        "os": ["sched_getaffinity", "posix_fallocate", "posix_fadvise", "memfd_create", "eventfd"],
        "select": ["epoll"],
    },
}
"""What a system lacks: modules, and names of modules."""

PROGRAM = """
import asyncio, http.server, importlib, logging.handlers, multiprocessing, pkgutil, sqlite3, ssl, subprocess, sys
import tempfile, unittest.mock, urllib.request, uuid
import pytest, hypothesis  # that import what is hidden below

import functools, socket
socket.socketpair = functools.partial(socket.socketpair, socket.AF_UNIX)  # Windows has one without that family
platform, hidden = sys.argv[1], eval(sys.argv[2])
for name in hidden.pop("modules"):
    sys.modules[name] = None
for module, names in hidden.items():
    for name in names:
        vars(importlib.import_module(module)).pop(name, None)
sys.platform = platform

import stompy
for found in pkgutil.walk_packages(stompy.__path__, "stompy."):
    if not found.name.startswith(("stompy.spark", "stompy.cli.spark", "stompy.testing")):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)

from stompy.broker import Broker
with Broker(ws=True) as broker, stompy.connect(broker.url) as connection:
    connection.send("/queue/a", "hello", confirm=True)
    with connection.subscribe("/queue/a") as subscription:
        print(subscription.receive(timeout=20).text)
worker = stompy.Worker("stomp://localhost:1")
worker.add(print, "/queue/a")
worker.run_once("/queue/a", "x")
from stompy.cli.main import main
sys.exit(main(["completion", "fish"]))
"""


@pytest.mark.parametrize("platform", HIDDEN)
def test_it_works_without_what_another_system_lacks(platform: str) -> None:
    command = [sys.executable, "-c", PROGRAM, platform, repr(HIDDEN[platform])]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("hello\n")
