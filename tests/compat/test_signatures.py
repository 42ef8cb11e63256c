"""Every public name of stomp.py 8.2 and 9.0 is there with its signature, but for the differences listed here."""

from __future__ import annotations

import fnmatch
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.compat.conftest import RELEASES
from tests.compat.signatures import MODULES, signature

RECORDED: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("stomp_py.json").read_text())

DIFFERENT = {
    "adapter.multicast.*": "messages without a broker: use the embedded broker",
    "*.on_error": "of what sends heartbeats: takes the frame, as everywhere",
    "*.on_receipt": "of what sends heartbeats: takes the frame, as everywhere",
    "*.receive": "received bytes go to stompy's parser",
    "*.shutdown_queue": "there is no queue",
    "utils.PollableQueue*": "there is no queue",
    "*.*_KEEPALIVE_AVAIL": "stompy sets the options that the system has",
    "*.DEFAULT_SSL_VERSION": "the newest version that both sides have",
    "*.set_ssl": "for_hosts=(), ssl_version=None; in 8.2 without verify",
    "*Connection*1?": "takes the arguments for TLS of releases before 8 too",
    "*Connection": "takes the arguments for TLS of releases before 8 too",
    "__version__": "text that can be compared with tuples too",
    "transport.Transport": "recv_bytes is ignored",
    "adapter.ws.WSTransport": "recv_bytes is ignored",
}
"""What is missing or has another signature, by pattern, and why."""

MISSING = "missing"


def found(path: str) -> str:
    """Return the signature of a name of stompy.compat."""
    module = max((name for name in MODULES if path.startswith(f"{name}.") or not name), key=len)
    value: Any
    try:
        value = import_module(f"stompy.compat.{module}" if module else "stompy.compat")
        for name in path.removeprefix(module).strip(".").split("."):
            value = getattr(value, name)
    except (ImportError, AttributeError):
        return MISSING
    return signature(value)


def differences(names: dict[str, str]) -> dict[str, str]:
    return {path: found(path) for path, expected in names.items() if found(path) != expected}


def reason(path: str) -> str | None:
    return next((why for pattern, why in DIFFERENT.items() if fnmatch.fnmatchcase(path, pattern)), None)


@pytest.mark.parametrize("release", RECORDED)
def test_every_public_name_has_its_signature(release: str) -> None:
    unexplained = {path: shown for path, shown in differences(RECORDED[release]).items() if reason(path) is None}
    assert unexplained == {}


@pytest.mark.parametrize("pattern", DIFFERENT)
def test_each_listed_difference_is_one(pattern: str) -> None:
    different = {path for names in RECORDED.values() for path in differences(names)}
    assert fnmatch.filter(different, pattern)


@pytest.mark.parametrize("release", RELEASES)
def test_the_record_is_that_of_the_package(release: str) -> None:
    names = Path(__file__).with_name("signatures.py")
    environment = {**os.environ, "PYTHONPATH": str(RELEASES[release])}
    printed = subprocess.run([sys.executable, names], env=environment, capture_output=True, check=True).stdout
    assert json.loads(printed) == {release: RECORDED[release]}
