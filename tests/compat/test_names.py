"""What `dir` and `import *` show of stomp.py's modules is there, but for what is listed here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compat.conftest import RELEASES
from tests.compat.names import names

STANDARD = (
    "copy deque errno math monotonic os platform queue random re selectors socket ssl struct sys threading time uuid"
)
SOCKET = "BytesIO IPPROTO_TCP SOL_SOCKET SOL_TCP SO_KEEPALIVE SSLError TCP_KEEPCNT TCP_KEEPIDLE TCP_KEEPINTVL"
LEFT_OUT = {
    STANDARD: "modules and names of the standard library",
    SOCKET: "names of the standard library",
    "websocket": "the package is not needed",
    "stomp multicast": "messages without a broker: use the embedded broker",
    "DEFAULT_SSL_VERSION": "is there, but is shown by no dir, as ssl is slow to import; so is ssl itself",
    "LINUX_KEEPALIVE_AVAIL MAC_KEEPALIVE_AVAIL": "stompy sets the options that the system has",
    "PollableQueue": "there is no queue",
    "_HEADER_ESCAPES _HEADER_UNESCAPES _unescape_header": "private",
    "logging": "renamed to log by 9.0; as a module it is there",
}
"""Names, and why they are not there."""
LEFT_OUT_MODULES = {
    "adapter.multicast": "messages without a broker: use the embedded broker",
    "colours": "of the shell, in whose place is the stompy command",
    "__main__": "the shell; ours runs programs",
}


@pytest.mark.parametrize("release", RELEASES)
def test_every_name_of_every_module_is_there(release: str) -> None:
    program = Path(__file__).with_name("names.py")
    environment = {**os.environ, "PYTHONPATH": str(RELEASES[release])}
    printed = subprocess.run([sys.executable, program], env=environment, capture_output=True, check=True).stdout
    theirs = json.loads(printed)
    ours = names("stompy.compat", list(theirs))
    allowed = set(" ".join(LEFT_OUT).split())
    left_out = [name for name in theirs if name in LEFT_OUT_MODULES]
    assert [name for name in theirs if name not in ours or name == "__main__"] == left_out
    missing = {
        (module, kind): set(keys) - set(ours[module][kind]) - allowed
        for module in theirs.keys() - LEFT_OUT_MODULES.keys()
        for kind, keys in theirs[module].items()
    }
    assert {place: keys for place, keys in missing.items() if keys} == {}


def test_modules_can_be_reloaded() -> None:
    program = (
        "from stompy.compat import install\n"
        "install()\n"
        "import importlib, stomp, stomp.connect, stomp.listener, stomp.transport, stomp.adapter.ws\n"
        "for module in (stomp.listener, stomp.transport, stomp.connect, stomp.adapter.ws, stomp):\n"
        "    assert importlib.reload(module) is module\n"
        "from stomp.connect import *\n"
        "assert stomp.Connection is StompConnection11 and issubclass(StompConnection11, Publisher)\n"
        "stomp.Connection([('127.0.0.1', 1)]).set_listener('', ConnectionListener())\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
