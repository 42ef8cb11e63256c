"""The console's page in a real browser."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from stompy.broker import Broker
from stompy.connection.connecting import connect
from stompy.connection.connection import Connection
from tests.broker.console.conftest import until
from tests.browser.conftest import ITEMS
from tests.support.browser import WITHIN, Page

pytestmark = pytest.mark.needs("browser")

DRAWN = "(canvas) => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some(Boolean)"
MARKUP = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"


def test_queues_topics_and_connections_are_shown(page: Page, client: Connection) -> None:
    client.subscribe("/queue/a", ack="client-individual")
    client.subscribe("/topic/t", ack="auto")
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
        subscription.receive(timeout=20).ack()
    subscription.close()
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
    subscription.receive(timeout=20).nack()
    page.click("/queue/DLQ", within=".view")
    page.click("again", within=".items")
    page.click("Retry", within="#detail")
    subscription.receive(timeout=20).nack()
    page.until("[...document.querySelectorAll('#detail button')].some((button) => button.textContent === 'Refresh')")
    until(lambda: broker.depth("/queue/DLQ") == 1)
    page.click("Refresh", within="#detail")
    page.click("Retry all", within="#detail")
    assert subscription.receive(timeout=20).text == "again"


def test_the_live_tail_and_the_frames_pass(page: Page, client: Connection) -> None:
    client.subscribe("/queue/a", ack="auto")
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
    client.close()


def test_content_is_shown_as_text_and_does_nothing(page: Page, client: Connection) -> None:
    client.subscribe(f"/queue/{MARKUP}", ack="auto")
    client.send("/queue/a", MARKUP, headers={MARKUP.replace(":", ""): MARKUP}, confirm=True)
    page.click("/queue/<img", within=".view")
    page.press("Escape")
    page.click("/queue/a", within=".view")
    page.click("<img", within=".items")
    page.until("document.querySelector('#detail pre')")
    assert MARKUP in page.run("document.querySelector('#detail pre').textContent")
    page.press("Escape")
    page.click("/queue/a", within=".view")
    page.click("Live", within=".subtabs")
    comes_as_text(page, client)
    page.click("Connections", within="#tabs")
    page.click("127.0.0.1", within=".view")
    assert MARKUP in page.run("document.querySelector('#detail dl').textContent")
    comes_as_text(page, client)
    assert page.run("document.title") == "stompy console"
    assert page.run("document.querySelectorAll('img, script').length") == 1


def comes_as_text(page: Page, client: Connection) -> None:
    """Send markup while the page shows what passes."""
    page.until("document.querySelector('#detail .quiet.grow').textContent.includes('passed')")
    client.send("/queue/a", MARKUP, headers={"kind": MARKUP}, confirm=True)
    page.until(f"({ITEMS}).includes({json.dumps(MARKUP)})")
