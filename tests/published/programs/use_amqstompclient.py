"""The tests that amqstompclient installs, which are run in its folder, and set a logger first.

Each one connects with the client id of the one before at once after DISCONNECT, for whose RECEIPT it has not waited.
Where ActiveMQ still has that session, its ERROR ends the whole process. So there is a pause after each.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
import time
from pathlib import Path

spec = importlib.util.find_spec("amqstompclient")
sys.path.insert(0, str(Path(spec.origin).parent))
sys.modules.pop("amqstompclient", None)

import test_amqstompclient as tests  # noqa: E402

tests.logger = logging.getLogger("amqstompclient")


class TestClient(tests.TestClient):
    def tearDown(self) -> None:
        time.sleep(0.5)
