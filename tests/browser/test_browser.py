"""Headless Chromium with the libraries that web pages use, against the embedded broker."""

from __future__ import annotations

import json
import logging
import queue
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from stompy.broker import Broker, BrokerLimits
from tests.support.options import chosen

LIBRARIES = {
    "stompjs 7": "@stomp/stompjs/bundles/stomp.umd.min.js",
    "stompjs 6": "stompjs6/bundles/stomp.umd.min.js",
    "webstomp": "webstomp-client/dist/webstomp.min.js",
}
PAGE = Path(__file__).with_name("page.html")
PATIENCE = 50.0


class Site(ThreadingHTTPServer):
    """Serves the page and a library, and takes the results."""

    daemon_threads = True

    def __init__(self, library: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = {"/": PAGE, "/library.js": library}
        self.results: queue.Queue[tuple[str, Any]] = queue.Queue()
        self.broker: Broker | None = None


class _Handler(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        file = self.server.files.get(self.path.partition("?")[0])
        self.send_response(404 if file is None else 200)
        self.send_header("Content-Type", "text/javascript" if self.path.endswith(".js") else "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(b"" if file is None else file.read_bytes())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/restart":
            assert self.server.broker is not None
            self.server.broker.close()
            self.server.broker.start()
        else:
            self.server.results.put((self.path.rpartition("/")[2], json.loads(body)))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(params=list(LIBRARIES))
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    with Site(Path(chosen.browser_libraries) / LIBRARIES[request.param]) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def broker(site: Site) -> Iterator[Broker]:
    origin = f"http://127.0.0.1:{site.server_port}"
    with Broker(
        ws=True, origins=[origin], users={"page": "sesame"}, limits=BrokerLimits(login_delay=0.0), heartbeat=(0.5, 0.5)
    ) as running:
        site.broker = running
        yield running


def browse(site: Site, address: str, folder: Path) -> tuple[str, Any]:
    """Open a page in a browser of its own until it reports a result."""
    chromium = shutil.which("chromium")
    assert chromium is not None
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    options += ["--disable-background-networking", "--disable-extensions", f"--user-data-dir={folder}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([chromium, *options, address], stdout=log, stderr=log)
    try:
        return site.results.get(timeout=PATIENCE)
    finally:
        process.terminate()
        process.wait(20)


@pytest.mark.needs("browser")
def test_pages_of_the_origin_do_all_that_stomp_has(site: Site, broker: Broker, tmp_path: Path) -> None:
    address = f"http://127.0.0.1:{site.server_port}/?broker={quote(broker.ws_url)}"
    name, results = browse(site, address, tmp_path)
    refusal = results.pop("login")
    assert (name, results) == (
        "steps",
        {
            "version": "1.2",
            "modes": "ok",
            "transactions": "kept",
            "large": True,
            "binary": True,
            "restart": "ok",
        },
    )
    assert "wrong login or passcode" in refusal
    queues = broker.stats().queues
    assert {name: depth.ready for name, depth in queues.items() if depth.ready} == {
        "/queue/client-individual": 2,
        "/queue/done": 2,
    }


@pytest.mark.needs("browser")
def test_a_page_of_another_origin_is_refused(
    site: Site, broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "stompy")
    address = f"http://localhost:{site.server_port}/?foreign&broker={quote(broker.ws_url)}"
    assert browse(site, address, tmp_path) == ("foreign", "closed 1006")
    assert f"the origin 'http://localhost:{site.server_port}' is not among the broker's origins" in caplog.text
