"""The chat of `examples/web`: two tabs and a worker, over a broker that serves the page."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stompy.broker import Broker
from tests.support.browser import Browser
from tests.support.options import chosen
from tests.support.peer import until

TOP = Path(__file__).parents[2]


@pytest.mark.needs("browser")
def test_two_tabs_chat_over_a_worker(chromium: Browser, tmp_path: Path) -> None:
    shutil.copy(TOP / "examples/web/index.html", tmp_path)
    shutil.copy(Path(chosen.browser_libraries) / "@stomp/stompjs/bundles/stomp.umd.min.js", tmp_path)
    with Broker(ws=True, serve=tmp_path) as broker:
        command = [sys.executable, str(TOP / "examples/web/chat.py")]
        with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(TOP), "STOMPY_URL": broker.url}) as worker:
            try:
                tabs = [chromium.page(broker.ws_url.replace("ws", "http", 1)) for _ in range(2)]
                until(lambda: broker.stats().subscriptions == 3)
                for number, tab in enumerate(tabs):
                    tab.fill("input", f"hello {number}")
                    tab.run("document.forms[0].requestSubmit()")
                    for each in tabs:
                        each.until(f"document.querySelector('li').textContent === 'somebody: hello {number}'")
                assert [tab.faults() for tab in tabs] == [[], []]
                for tab in tabs:
                    tab.close()
            finally:
                worker.terminate()
