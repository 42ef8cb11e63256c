"""How the console's page behaves: by keyboard, on a phone, with much to show, and against another page."""

from __future__ import annotations

import http.server
import json
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stompy.broker import Broker
from stompy.connection.connection import Connection
from tests.browser.conftest import ITEMS
from tests.support.browser import Page, browser

pytestmark = pytest.mark.needs("browser")


def test_the_keyboard_is_enough(page: Page, client: Connection) -> None:
    client.send("/queue/a", "x", confirm=True)
    client.send("/queue/b", "x", confirm=True)
    page.until("document.querySelectorAll('.view .row').length >= 2")
    for key in ("j", "j", "Enter"):
        page.press(key)
    page.until("document.querySelector('#detail h2').textContent === '/queue/b'")
    page.press("Escape")
    page.press("/")
    page.until("document.activeElement.type === 'search'")
    page.press("a")
    page.until("document.querySelectorAll('.view .row:not([hidden])').length === 1")
    page.press("Escape")
    page.press("4")
    page.until("document.querySelector('form input[name=destination]')")


def test_the_tab_key_reaches_everything_and_shows_where_it_is(page: Page, client: Connection) -> None:
    client.send("/queue/a", "x", confirm=True)
    page.until("document.querySelectorAll('.view .row').length === 1")
    reached = []
    for _ in range(13):
        page.press("Tab")
        reached.append(
            page.run("document.activeElement.getAttribute('aria-label') || document.activeElement.textContent")
        )
        assert page.run("getComputedStyle(document.activeElement).outlineStyle") == "solid", reached[-1]
    assert reached[:5] == ["Keyboard shortcuts", "Light or dark", "Queues1", "Filter queues", "Queues"]
    assert reached[5:] == ["Queue", "Ready", "Unacked", "Consumers", "In/s", "Out/s", "Acked/s", "2 min"]
    page.run("document.querySelector('.grid').focus()")
    page.press("ArrowDown")
    chosen = "document.getElementById(document.activeElement.getAttribute('aria-activedescendant'))"
    page.until(f"{chosen}.getAttribute('aria-selected') === 'true' && {chosen}.innerText.startsWith('/queue/a')")
    page.press("Enter")
    page.until("document.activeElement.textContent === '/queue/a'")
    page.click("x", within=".items")
    page.until("document.activeElement.className === 'back'")
    page.press("Escape")
    page.until("document.activeElement.className === 'items'")
    page.press("Escape")
    page.until("document.querySelector('#detail').hidden && document.activeElement.className.startsWith('grid')")
    page.run("document.querySelector('#tabs button').focus()")
    for name in ("Topics", "Connections", "Send", "Queues"):
        page.press("ArrowRight")
        page.until(f"document.activeElement.role === 'tab' && document.activeElement.textContent.startsWith('{name}')")


def test_a_phone_has_room_for_the_longest_names(page: Page, client: Connection) -> None:
    page.size(390, 844, mobile=True)
    long = "/queue/" + "x" * 300
    client.send(long, "x", headers={"y" * 300: "z" * 300}, confirm=True)
    page.click(long, within=".view")
    page.click("x", within=".items")
    page.until("document.querySelector('#detail table')")
    wide = "[...document.querySelectorAll('body *')].filter((one) => one.getBoundingClientRect().right > 391).length"
    assert page.run(wide) == 0
    assert page.run("document.querySelector('#list').inert"), "what the details cover is not reached"
    page.press("Escape")
    page.press("Escape")
    page.until("!document.querySelector('#list').inert")
    assert page.run(wide) == 0


def test_lines_stay_while_one_has_the_focus(page: Page, client: Connection) -> None:
    client.send("/queue/a", "0", confirm=True)
    page.click("/queue/a", within=".view")
    page.click("Live", within=".subtabs")
    page.until("document.querySelector('#detail .quiet.grow').textContent === '0 passed'")
    client.send("/queue/a", "first", confirm=True)
    page.until(f"({ITEMS}).includes('first')")
    page.run("document.querySelector('#detail .item').focus()")
    client.send("/queue/a", "second", confirm=True)
    page.until("document.querySelector('#detail .quiet.grow').textContent === '2 passed, 1 of them shown'")
    page.run("document.activeElement.blur()")
    client.send("/queue/a", "third", confirm=True)
    page.until(f"({ITEMS}).includes('third')")
    assert "second" not in page.run(ITEMS)


def test_a_thousand_queues_cost_what_is_in_view(page: Page, client: Connection) -> None:
    """In the thread's own CPU time, as other programs share the machine."""
    with client.batch():
        for number in range(1000):
            client.send(f"/queue/{number:04}", "x")
    page.until("document.querySelector('#tabs small').textContent === '1,000'")
    assert page.run("document.querySelectorAll('.view .row').length") < 40
    page.call("Performance.enable", timeDomain="threadTicks")
    spent = []
    stop = threading.Event()
    busy = threading.Thread(
        target=lambda: [client.send_async("/queue/0000", "x") for _ in iter(lambda: stop.wait(0.05), True)]
    )
    busy.start()
    for _ in range(2):
        page.run(NEXT_UPDATE)
        metrics = {metric["name"]: metric["value"] for metric in page.call("Performance.getMetrics")["metrics"]}
        spent.append(metrics["TaskDuration"])
    stop.set()
    busy.join()
    assert spent[1] - spent[0] < 0.05


NEXT_UPDATE = """
new Promise((done) => {
  const ready = document.querySelectorAll('.tile b')[2];
  const seen = (_, observer) => { observer.disconnect(); setTimeout(done, 100); };
  new MutationObserver(seen).observe(ready, { childList: true });
})
"""


def test_the_page_connects_again_after_a_restart(page: Page, broker: Broker) -> None:
    broker.close()
    page.until("document.querySelector('#state').textContent !== 'connected'")
    broker.start()
    page.until("document.querySelector('#state').textContent === 'connected'")
    page.forget_faults()  # that the WebSocket failed


ATTACK = """
(async () => {
  const [address, rebound, broker, frames] = %s;
  const tried = {};
  const attempt = async (name, work) => {
    try { tried[name] = await work(); } catch { tried[name] = 'refused'; }
  };
  const socket = (url) => new Promise((done) => {
    const opened = new WebSocket(url, ['v12.stomp']);
    opened.onopen = () => done('open');
    opened.onerror = () => done('refused');
  });
  await attempt('read', async () => (await fetch(address)).text());
  await attempt('blind', async () => (await (await fetch(address, { mode: 'no-cors' })).text()) || 'refused');
  await attempt('websocket', () => socket(address.replace('http:', 'ws:') + 'stomp'));
  await attempt('rebound', () => socket(rebound.replace('http:', 'ws:') + 'stomp'));
  await attempt('by that name', async () => (await fetch(rebound)).text());
  await attempt('broker', () => socket(broker.replace('http:', 'ws:')));
  const post = { method: 'POST', mode: 'no-cors', body: frames };
  await attempt('post', async () => (await (await fetch(address, post)).text()) || 'refused');
  await attempt('post to the broker', async () => (await (await fetch(broker, post)).text()) || 'refused');
  await attempt('script', () => new Promise((done) => {
    const made = document.createElement('script');
    made.src = address;
    made.onload = () => done('loaded');
    made.onerror = () => done('refused');
    document.body.append(made);
  }));
  await attempt('frame', () => new Promise((done) => {
    const made = document.createElement('iframe');
    made.src = address;
    made.onload = () => { try { done(made.contentDocument.body.innerText || 'refused'); } catch { done('refused'); } };
    document.body.append(made);
  }));
  return tried;
})()
"""


class _Attacker(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<!doctype html><title>attack</title><body>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def attacker() -> Iterator[str]:
    """The address of a page of somebody else."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Attacker) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


FRAMES = "CONNECT\naccept-version:1.2\nhost:h\n\n\0SEND\ndestination:/queue/a\n\n\0"


def test_a_page_of_another_origin_can_neither_read_nor_send(broker: Broker, attacker: str) -> None:
    """Even with the token, which it cannot know; `rebound.example` is a name of its own that leads to this machine."""
    rebound = broker.console_url.replace("127.0.0.1", "rebound.example")
    rule = "--host-resolver-rules=MAP rebound.example 127.0.0.1"
    attack = ATTACK % json.dumps([broker.console_url, rebound, broker.ws_url.replace("ws:", "http:"), FRAMES])
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, browser(Path(profile), rule) as started:
        page = started.page(attacker)
        refused = page.run(attack)
        assert set(refused.values()) == {"refused"}, refused
        page.go(rebound)
        assert "own machine" in page.text()
        assert page.run("document.querySelectorAll('script').length") == 0
        tried = page.run(attack)  # now from an origin that leads to the console itself
        assert "own machine" in tried.pop("by that name")
        assert {**tried, "by that name": "refused"} == refused
    assert broker.stats().messages_in == 0
    assert broker.stats().queues == {}
