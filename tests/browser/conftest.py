"""A browser with the console's page."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from stompy.broker import Broker
from stompy.connection.connecting import connect
from stompy.connection.connection import Connection
from tests.support.browser import Browser, Page, browser

ITEMS = "document.querySelector('#detail .items').innerText"
"""The lines of a list of messages."""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, browser(Path(profile)) as started:
        yield started


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(console=True, ws=True, attempts=1) as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[Connection]:
    with connect(broker.url) as client:
        yield client


@pytest.fixture
def page(chromium: Browser, broker: Broker) -> Iterator[Page]:
    """The console's page, connected; at the end of the test nothing may have gone wrong in it."""
    page = chromium.page(broker.console_url)
    page.size(1180, 760)
    page.until("document.querySelector('#state').textContent === 'connected'")
    yield page
    assert page.faults() == []
    page.close()
