"""The console's page in a real browser."""

from __future__ import annotations

import http.server
import json
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stompy.broker import Broker
from stompy.connection.connecting import connect
from stompy.connection.connection import Connection
from tests.broker.console.conftest import until
from tests.support.browser import Browser, Page, browser

pytestmark = pytest.mark.needs("browser")

MARKUP = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, browser(Path(profile)) as started:
        yield started


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(console=True, max_redeliveries=0) as broker:
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


def test_queues_topics_and_connections_are_shown(page: Page, client: Connection) -> None:
    client.subscribe("/queue/a", ack="client-individual")
    client.subscribe("/topic/t")
    for _ in range(3):
        client.send("/queue/a", "x", confirm=True)
    client.send("/queue/b", "x", confirm=True)
    page.until("document.querySelectorAll('.view .row').length >= 2")
    page.until(
        "[...document.querySelectorAll('.view .row')].some((row) => /queue.a\\s*0\\s*3\\s*1/.test(row.innerText))"
    )
    page.click("Topics", within="#tabs")
    page.click("/topic/t", within=".view")
    page.press("Escape")
    page.click("Connections", within="#tabs")
    page.click("127.0.0.1", within=".view")
    assert "STOMP 1.2" in page.text()
    assert "10 s / 10 s" in page.text()


def test_a_message_is_opened_edited_and_sent_again(page: Page, client: Connection, broker: Broker) -> None:
    client.send("/queue/a", '{"price": 1}', headers={"kind": "first: a\nb"}, confirm=True)
    page.click("/queue/a", within=".view")
    page.click('{"price": 1}', within=".items")
    page.click("Edit and send")
    page.until("document.querySelector('form textarea').value.includes('kind: first: a\\\\nb')")
    page.fill("form textarea[rows='9']", '{"price": 2}')
    page.click("Send", within="form")
    until(lambda: broker.depth("/queue/a") == 2)
    second = broker.browse("/queue/a")[1]
    assert (second.text, second.headers["kind"]) == ('{"price": 2}', "first: a\nb")


def test_queues_are_managed(page: Page, client: Connection, broker: Broker) -> None:
    for text in "123":
        client.send("/queue/a", text, confirm=True)
    page.click("/queue/a", within=".view")
    page.click("Pause", within="#detail")
    page.until("document.querySelector('#detail .chip.warn')")
    page.click("Resume", within="#detail")
    page.fill("#detail input[aria-label^='Queue to move']", "/queue/b")
    page.click("Move", within="#detail")
    until(lambda: broker.depth("/queue/b") == 3)
    page.press("Escape")
    page.click("/queue/b", within=".view")
    page.click("Purge", within="#detail")
    assert broker.depth("/queue/b") == 3, "it asks once more"
    page.click("Drop", within="#detail")
    until(lambda: broker.depth("/queue/b") == 0)


def test_a_dead_letter_is_sent_back(page: Page, client: Connection, broker: Broker) -> None:
    subscription = client.subscribe("/queue/a", ack="client-individual")
    client.send("/queue/a", "again", confirm=True)
    subscription.receive(20).nack()
    page.click("/queue/DLQ", within=".view")
    page.click("again", within=".items")
    page.click("Retry", within="#detail")
    assert subscription.receive(20).text == "again"


def test_the_live_tail_and_the_frames_pass(page: Page, client: Connection) -> None:
    client.subscribe("/queue/a")
    page.click("/queue/a", within=".view")
    page.click("Live", within=".subtabs")
    page.fill("input[aria-label='Text in headers or body']", "needle")
    page.until("document.querySelector('#detail .quiet.grow').textContent === '0 passed'")
    page.press("Tab")
    for text in ("hay", "a needle", "more hay"):
        client.send("/queue/a", text, confirm=True)
    # The filter takes effect a moment after it was written; what came before it is not in its tail.
    while "needle" not in page.run(ITEMS):
        client.send("/queue/a", "needle 2", confirm=True)
    assert "hay" not in page.run(ITEMS)
    page.click("Connections", within="#tabs")
    page.click("127.0.0.1", within=".view")
    page.until("document.querySelector('#detail .quiet.grow').textContent.includes('passed')")
    client.send("/queue/a", "x", headers={"passcode": "sesame"}, confirm=True)
    page.until(f"({ITEMS}).includes('SEND') && ({ITEMS}).includes('passcode: ***')")
    assert "sesame" not in page.run("document.documentElement.innerHTML")


ITEMS = "document.querySelector('#detail .items').innerText"


def test_a_connection_is_ended(page: Page, broker: Broker) -> None:
    client = connect(broker.url, reconnect=False)
    page.click("Connections", within="#tabs")
    page.click("127.0.0.1", within=".view")
    page.click("End connection", within="#detail")
    page.click("End it now", within="#detail")
    until(lambda: not client.connected)
    page.until("document.querySelector('#detail .chip')")
    client.disconnect()


def test_content_is_shown_as_text_and_does_nothing(page: Page, client: Connection) -> None:
    client.subscribe(f"/queue/{MARKUP}")
    client.send("/queue/a", MARKUP, headers={MARKUP.replace(":", ""): MARKUP}, confirm=True)
    page.click("/queue/<img", within=".view")
    page.press("Escape")
    page.click("/queue/a", within=".view")
    page.click("<img", within=".items")
    page.until("document.querySelector('#detail pre')")
    assert MARKUP in page.run("document.querySelector('#detail pre').textContent")
    page.click("Connections", within="#tabs")
    page.click("127.0.0.1", within=".view")
    assert MARKUP in page.run("document.querySelector('#detail dl').textContent")
    assert page.run("document.title") == "stompy console"
    assert page.run("document.querySelectorAll('img, script').length") == 1


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


def test_the_page_connects_again_after_a_restart(page: Page, broker: Broker) -> None:
    broker.stop()
    page.until("document.querySelector('#state').textContent !== 'connected'")
    broker.start()
    page.until("document.querySelector('#state').textContent === 'connected'")
    page.forget_faults()  # that the WebSocket failed


ATTACK = """
(async () => {
  const [address, rebound] = %s;
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


def test_a_page_of_another_origin_can_neither_read_nor_send(broker: Broker, attacker: str) -> None:
    """Even with the token, which it cannot know; `rebound.example` is a name of its own that leads to this machine."""
    rebound = broker.console_url.replace("127.0.0.1", "rebound.example")
    rule = "--host-resolver-rules=MAP rebound.example 127.0.0.1"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, browser(Path(profile), rule) as started:
        page = started.page(attacker)
        tried = page.run(ATTACK % json.dumps([broker.console_url, rebound]))
        names = ("read", "blind", "websocket", "rebound", "script", "frame")
        assert tried == dict.fromkeys(names, "refused")
        page.go(rebound)
        assert "own machine" in page.text()
        assert page.run("document.querySelectorAll('script').length") == 0
    assert broker.stats().messages_in == 0
