"""A drop-in replacement for stomp.py 8.2 and 9.0: `import stompy.compat as stomp`."""

from __future__ import annotations

from stompy.compat import adapter, connect, constants, exception, listener, log, protocol, transport, utils
from stompy.compat.adapter.ws import WSStompConnection
from stompy.compat.connect import StompConnection10, StompConnection11, StompConnection12
from stompy.compat.install import RELEASE as __version__  # noqa: N811
from stompy.compat.install import install, tuple_version
from stompy.compat.listener import ConnectionListener, PrintingListener, StatsListener, WaitingListener

Connection10 = StompConnection10
Connection11 = StompConnection11
Connection12 = StompConnection12
Connection = StompConnection11
WSConnection = WSStompConnection
logging = log

__all__ = [
    "Connection",
    "Connection10",
    "Connection11",
    "Connection12",
    "ConnectionListener",
    "PrintingListener",
    "StatsListener",
    "StompConnection10",
    "StompConnection11",
    "StompConnection12",
    "WSConnection",
    "WSStompConnection",
    "WaitingListener",
    "__version__",
    "adapter",
    "connect",
    "constants",
    "exception",
    "install",
    "listener",
    "log",
    "logging",
    "protocol",
    "transport",
    "tuple_version",
    "utils",
]
