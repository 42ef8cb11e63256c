"""The console's page in a real browser."""

from __future__ import annotations

import http.server
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stompy.broker import Broker
from stompy.connection.connecting import connect
from stompy.connection.connection import Connection
from tests.broker.console.conftest import until
from tests.support.browser import WITHIN, Browser, Page, browser

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
    page.until(
        f"({DRAWN})(document.querySelector('.tile canvas')) && ({DRAWN})(document.querySelector('.view canvas'))"
    )
    page.click("/queue/a", within=".view")
    page.until(f"({DRAWN})(document.querySelector('#detail canvas'))")
    page.click("Topics", within="#tabs")
    page.click("/topic/t", within=".view")
    client.send("/topic/t", "a price", confirm=True)
    page.until(f"({ITEMS}).includes('a price')")
    page.press("Escape")
    page.click("Connections", within="#tabs")
    page.click("127.0.0.1", within=".view")
    assert "STOMP 1.2" in page.text()
    assert "10 s / 10 s" in page.text()
    page.until("document.querySelector('#detail dl').innerText.includes('SEND, ')")


DRAWN = "(canvas) => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some(Boolean)"
ITEMS = "document.querySelector('#detail .items').innerText"


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


def test_what_is_edited_stays_as_it_was(page: Page, client: Connection, broker: Broker) -> None:
    headers = {"a:b": " x ", "token": "sesame"}
    client.send("/queue/a", b"1\r\n2\r3", headers=headers, confirm=True)
    page.click("/queue/a", within=".view")
    page.click("1 2 3", within=".items")
    page.click("Edit and send")
    page.until("document.activeElement.tagName === 'TEXTAREA'")
    assert "token" in page.run("document.querySelector('#note').textContent"), "it says what it leaves out"
    page.click("Send", within="form")
    until(lambda: broker.depth("/queue/a") == 2)
    page.fill("form textarea[rows='9']", "1\n2\n4")
    page.click("Send", within="form")
    until(lambda: broker.depth("/queue/a") == 3)
    _, same, edited = broker.browse("/queue/a")
    assert (same.body, edited.body) == (b"1\r\n2\r3", b"1\r\n2\r\n4")
    assert same.headers["a:b"] == " x "
    assert "token" not in same.headers


def test_a_message_is_sent(page: Page, broker: Broker) -> None:
    page.press("4")
    page.until("document.activeElement.name === 'destination'")
    page.fill("form input[name=destination]", "/queue/a")
    page.fill("form textarea[rows='4']", "kind: first\nkind: second")
    page.fill("form textarea[rows='9']", "AAEC")
    page.click("The body is binary", within="form")
    page.click("Send", within="form")
    until(lambda: broker.depth("/queue/a") == 1)
    (message,) = broker.browse("/queue/a")
    assert (message.body, message.headers["kind"]) == (b"\0\1\2", "first")
    page.fill("form textarea[rows='4']", "content-length: 1")
    page.click("Send", within="form")
    page.until("document.querySelector('#note').textContent.includes('set by the page')")


def test_numbers_are_shown_as_they_were_written(page: Page, client: Connection) -> None:
    client.send(
        "/queue/a", '{"id":12345678901234567890,"price":1.0,"text":"a, [b]: {}","none":[ ],"many":[1,2]}', confirm=True
    )
    page.click("/queue/a", within=".view")
    page.click("{", within=".items")
    page.until("document.querySelector('#detail pre')")
    assert page.run("document.querySelector('#detail pre').textContent") == (
        '{\n  "id": 12345678901234567890,\n  "price": 1.0,\n  "text": "a, [b]: {}",\n  "none": [],\n'
        '  "many": [\n    1,\n    2\n  ]\n}'
    )


def test_a_long_body_does_not_stop_the_page(page: Page, client: Connection) -> None:
    client.send("/queue/a", "x" * 300_000, confirm=True)
    page.click("/queue/a", within=".view")
    page.click("x", within=".items")
    page.until("document.querySelector('#detail pre').textContent.length === 10000")
    assert "Too long to edit" in page.text()
    page.click("Show the rest", within="#detail")
    page.until("document.querySelector('#detail pre').textContent.length === 262144")


def test_queues_are_managed(page: Page, client: Connection, broker: Broker) -> None:
    for text in "123":
        client.send("/queue/a", text, confirm=True)
    page.click("/queue/a", within=".view")
    page.click("Pause", within="#detail")
    page.until("document.querySelector('#detail .chip.warn')")
    subscription = client.subscribe("/queue/a", ack="client-individual")
    client.send("/queue/other", "x", confirm=True)
    assert broker.depth("/queue/a") == 3, "it takes messages and gives none"
    page.click("Resume", within="#detail")
    for _ in range(3):
        subscription.receive(20).ack()
    subscription.unsubscribe()
    for text in "123":
        client.send("/queue/a", text, confirm=True)
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
    subscription.receive(20).nack()
    page.until("[...document.querySelectorAll('#detail button')].some((button) => button.textContent === 'Refresh')")
    until(lambda: broker.depth("/queue/DLQ") == 1)
    page.click("Refresh", within="#detail")
    page.click("Retry all", within="#detail")
    assert subscription.receive(20).text == "again"


def test_the_live_tail_and_the_frames_pass(page: Page, client: Connection) -> None:
    client.subscribe("/queue/a")
    page.click("/queue/a", within=".view")
    page.click("Live", within=".subtabs")
    page.fill("input[aria-label='Text in headers or body']", "needle")
    page.until("document.querySelector('#detail .quiet.grow').textContent === '0 passed'")
    page.press("Tab")
    # A filter takes effect a moment after it was written, with an empty list.
    send_until(lambda shown: "needle" in shown and "hay" not in shown, page, client, ["hay", "a needle"])
    send_until(lambda shown: "the end" in shown, page, client, ["more hay", "a needle at the end"])
    assert "hay" not in page.run(ITEMS)
    page.fill("input[aria-label='Text in headers or body']", "")
    page.fill("input[aria-label='Selector on headers']", "kind = 'x'")
    client.send("/queue/a", "hay", confirm=True)
    long, kind = "of kind x " + "y" * 5000, {"kind": "x"}
    send_until(lambda shown: "of kind x" in shown and "hay" not in shown, page, client, ["hay", long], headers=kind)
    page.click("of kind x", within=".items")
    page.until("document.querySelector('#detail .back')")
    assert "Too long to edit" in page.text()
    page.press("Escape")
    page.until("document.activeElement.className === 'items'")
    page.click("Connections", within="#tabs")
    page.click("127.0.0.1", within=".view")
    page.until("document.querySelector('#detail .quiet.grow').textContent.includes('passed')")
    client.send("/queue/a", "x", headers={"passcode": "sesame", "Authorization": "Bearer sesame"}, confirm=True)
    page.until(f"({ITEMS}).includes('SEND') && ({ITEMS}).includes('passcode: ***')")
    page.run(
        "[...document.querySelectorAll('#detail .item')].find((item) => item.innerText.startsWith('SEND')).click()"
    )
    page.until("document.querySelector('#detail table').innerText.includes('Authorization')")
    assert "SEND" in page.run("document.querySelector('#detail .tools:has(.back)').innerText")
    assert "sesame" not in page.run("document.documentElement.innerHTML")


def send_until(
    holds: Callable[[str], bool],
    page: Page,
    client: Connection,
    bodies: list[str],
    headers: dict[str, str] | None = None,
) -> None:
    """Send messages, the last of them with headers, until the live view fulfils a condition."""
    give_up = time.monotonic() + WITHIN
    while not holds(shown := page.run(ITEMS)):
        assert time.monotonic() < give_up, shown
        for body in bodies:
            client.send("/queue/a", body, headers=headers if body is bodies[-1] else None, confirm=True)


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


def test_the_tab_key_reaches_everything_and_shows_where_it_is(page: Page, client: Connection) -> None:
    client.send("/queue/a", "x", confirm=True)
    page.until("document.querySelectorAll('.view .row').length === 1")
    reached = []
    for _ in range(12):
        page.press("Tab")
        reached.append(
            page.run("document.activeElement.getAttribute('aria-label') || document.activeElement.textContent")
        )
        assert page.run("getComputedStyle(document.activeElement).outlineStyle") == "solid", reached[-1]
    assert reached[:5] == ["Keyboard shortcuts", "Light or dark", "Queues1", "Filter queues", "Queues"]
    assert reached[5:] == ["Queue", "Ready", "Unacked", "Consumers", "In/s", "Out/s", "2 min"]
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
        target=lambda: [client.send("/queue/0000", "x") for _ in iter(lambda: stop.wait(0.05), True)]
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
