"""The tests that amqstompclient installs, which are run in its folder, and set a logger first."""

from __future__ import annotations

import importlib.util
import logging
import sys
from pathlib import Path

spec = importlib.util.find_spec("amqstompclient")
sys.path.insert(0, str(Path(spec.origin).parent))
sys.modules.pop("amqstompclient", None)

import test_amqstompclient as tests  # noqa: E402

tests.logger = logging.getLogger("amqstompclient")
TestClient = tests.TestClient
