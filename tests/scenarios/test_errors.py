"""Errors: what a broker answers to what is wrong, and whether it ends the connection."""

from __future__ import annotations

import pytest

import stompy
from stompy.errors import StompTimeoutError
from stompy.frames.frame import Frame
from tests.scenarios.acts import SOON, Recorder
from tests.scenarios.conftest import Connect, Expect, Raw
from tests.support.candidates import Candidate
from tests.support.rawclient import RawClient

pytestmark = [pytest.mark.broker, pytest.mark.scenario("errors")]

# NAME stands for a queue of the test's own; `receipt:r` is added to each.
WRONG: dict[str, str] = {
    "unknown-command": "FOO\n\n",
    "lower-case": "send\ndestination:NAME\n\nx",
    "server-frame": "RECEIPT\nreceipt-id:1\n\n",
    "send-nowhere": "SEND\n\nx",
    "send-empty": "SEND\ndestination:\n\nx",
    "header-no-colon": "SEND\ndestination:NAME\nnocolon\n\nx",
    "header-escape": "SEND\ndestination:NAME\nx:a\\tb\n\nx",
    "length-text": "SEND\ndestination:NAME\ncontent-length:abc\n\nx",
    "length-negative": "SEND\ndestination:NAME\ncontent-length:-1\n\nx",
    "length-short": "SEND\ndestination:NAME\ncontent-length:1\n\nxyz",
    "send-transaction": "SEND\ndestination:NAME\ntransaction:zz\n\nx",
    "subscribe-nowhere": "SUBSCRIBE\nid:7\n\n",
    "subscribe-no-id": "SUBSCRIBE\ndestination:NAME\n\n",
    "subscribe-twice": "SUBSCRIBE\ndestination:NAME.mine\nid:1\n\n",
    "subscribe-ack": "SUBSCRIBE\ndestination:NAME\nid:7\nack:banana\n\n",
    "subscribe-selector": "SUBSCRIBE\ndestination:NAME\nid:7\nselector:(((\n\n",
    "unsubscribe": "UNSUBSCRIBE\nid:nobody\n\n",
    "ack": "ACK\nid:nobody\nmessage-id:nobody\nsubscription:1\n\n",
    "nack": "NACK\nid:nobody\nmessage-id:nobody\nsubscription:1\n\n",
    "begin-unnamed": "BEGIN\n\n",
    "begin-twice": "BEGIN\ntransaction:t\n\n",
    "commit": "COMMIT\ntransaction:zz\n\n",
    "abort": "ABORT\ntransaction:zz\n\n",
    "stomp-twice": "STOMP\naccept-version:1.2\nhost:HOST\nlogin:LOGIN\npasscode:PASSCODE\n\n",
    "subscribe-empty": "SUBSCRIBE\ndestination:NAME\nid:7\nselector:\n\n",
    "subscribe-blank": "SUBSCRIBE\ndestination:NAME\nid:7\nselector:   \n\n",
    "subscribe-dots": "SUBSCRIBE\ndestination:NAME\nid:7\nselector:a.b = 1\n\n",
    "connect-twice": "CONNECT\naccept-version:1.2\nhost:HOST\nlogin:LOGIN\npasscode:PASSCODE\n\n",
}


def _is_probe(frame: Frame) -> bool:
    return frame.command == "RECEIPT" and frame.headers.get("receipt-id") == "probe"


def description(frames: list[Frame], up: bool) -> str:
    """Return what came, in order, whether an ERROR named the frame, and whether the connection is up."""
    words = []
    for frame in frames:
        if _is_probe(frame):
            continue
        named = frame.headers.get("receipt-id") if frame.command == "ERROR" else None
        words.append("then ERROR" if named == "probe" else f"{frame.command}{'(receipt-id)' if named else ''}")
    return ", ".join([" ".join(words) or "nothing", "open" if up else "closed"])


def answer_to(client: RawClient, queue: str, text: str) -> tuple[list[Frame], str]:
    """Send something wrong, then something right, and tell what came of it."""
    probe = client.encoded("SEND", {"destination": f"{queue}.probe", "receipt": "probe"}, b"x")
    head, _, body = text.partition("\n\n")
    wrong = f"{head}\nreceipt:r\n\n{body}\0".encode()
    try:
        frames, up = client.ask(wrong + probe, _is_probe, within=3.0)
        if up and len(frames) == 1:  # confirmations may overtake each other
            more, up = client.ask(probe, _is_probe)
            frames += more
    except StompTimeoutError:
        return [], "silence"
    return frames, description(frames, up)


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_answered(candidate: Candidate, raw: Raw, queue: str, expect: Expect, case: str) -> None:
    client = raw()
    client.subscribe(f"{queue}.mine", "client-individual")
    client.sure("BEGIN", {"transaction": "t"})
    text = WRONG[case].replace("NAME", queue)
    for name in ("host", "login", "passcode"):
        text = text.replace(name.upper(), candidate.connect_headers[name])
    frames, seen = answer_to(client, queue, text)
    errors = [frame for frame in frames if frame.command == "ERROR"]
    expect(f"error-{case}", seen, *errors)


def test_an_ack_given_twice(raw: Raw, queue: str, expect: Expect) -> None:
    client = raw()
    client.subscribe(queue, "client-individual")
    client.send(queue, "x")
    message = client.expect("MESSAGE")
    client.ack(message)
    client.settle(message, receipt="r")
    frames, up = client.ask(
        client.encoded("SEND", {"destination": f"{queue}.probe", "receipt": "probe"}, b"x"), _is_probe
    )
    expect("error-ack-twice", description(frames, up), *(frame for frame in frames if frame.command == "ERROR"))


@pytest.mark.once
@pytest.mark.parametrize("case", ["frame", "http"])
def test_what_comes_before_connect(raw: Raw, queue: str, expect: Expect, case: str) -> None:
    client = raw(connected=False)
    text = f"SEND\ndestination:{queue}\nreceipt:r\n\nx\0" if case == "frame" else "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    try:
        frames, up = client.ask(text.encode(), lambda frame: False, within=1.5)
    except StompTimeoutError:
        frames, _ = client.until(lambda frame: True) if client.pending else ([], True)
        up = True
    expect(f"error-early-{case}", description(frames, up), *frames)


def test_an_error_ends_the_link_once_and_says_why(connect: Connect, queue: str, expect: Expect) -> None:
    heard = Recorder()
    connection = connect(listeners=[heard])
    # What our own side would never send, behind its back.
    nobody = {"id": "nobody", "destination": f"{queue}.nobody"}
    link = connection._links.link
    receipt = link.receipts.make()
    link.writer.request("UNSUBSCRIBE", nobody, receipt=receipt)
    with pytest.raises(stompy.BrokerError) as refused:
        receipt.result(SOON)
    assert refused.value.frame.command == "ERROR"
    assert heard.over.wait(SOON)
    assert len(heard.errors) == len(heard.reasons) == 1
    assert isinstance(heard.reasons[0], stompy.BrokerError)
    with pytest.raises(stompy.SessionError) as ended:
        connection.send(queue, "x")
    assert (ended.value.outcome, ended.value.session_ended) == ("not-sent", True)
    expect("error-ends", f"{refused.value.receipt_id is not None}", refused.value.frame)
