"""Connecting: the session, the login, the version."""

from __future__ import annotations

import logging

import pytest

import stompy
from stompy.frames.frame import Frame
from tests.scenarios.acts import SOON, Recorder
from tests.scenarios.conftest import Connect, Expect, Raw
from tests.support.candidates import DIALECTS, ODD_LOGIN, ODD_PASSCODE, PASSCODE, Candidate
from tests.support.rawclient import RawClient

pytestmark = pytest.mark.broker


def answer(client: RawClient, **headers: str) -> Frame:
    """Say CONNECT with just these headers, and return what comes back."""
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    client.raw(("CONNECT\n" + "".join(f"{name}:{value}\n" for name, value in fields.items()) + "\n\0").encode())
    return client.frame()


def fate(client: RawClient, candidate: Candidate) -> str:
    """Return whether the broker closes the connection, or takes a second, correct CONNECT on it."""
    fields = {"accept-version": "1.2", **candidate.connect_headers}
    head = "".join(f"{name}:{value}\n" for name, value in fields.items())
    client.expect_another_handshake()
    _, up = client.ask(f"CONNECT\n{head}\n\0".encode(), lambda frame: frame.command == "CONNECTED")
    return "open for CONNECTED" if up else "closed"


@pytest.mark.scenario("connect")
def test_a_session_opens_in_the_version_asked_for(connect: Connect, version: str, expect: Expect) -> None:
    heard = Recorder()
    connection = connect(listeners=[heard])
    connection.close()
    assert heard.over.wait(20)
    expect("connected", connection.version == version, *heard.connected)


@pytest.mark.scenario("connect")
@pytest.mark.once
@pytest.mark.transports("tcp", "tls12", "tls13", "mtls", "unix")
def test_what_follows_the_nul_of_each_frame(raw: Raw, queue: str, expect: Expect) -> None:
    client = raw()
    client.say("SUBSCRIBE", {"id": "1", "destination": queue, "ack": "auto"})
    client.say("SEND", {"destination": queue}, b"x\0the end")
    data = b""
    while b"the end\0" not in data:
        data += client.recv(SOON)
    rest = data.partition(b"the end\0")[2] or client.recv(0.5)
    expect("connected-ends", {b"": "nothing", b"\n": "a line end"}[rest])


@pytest.mark.scenario("connect")
def test_a_connect_with_a_request_id(candidate: Candidate, raw: Raw, expect: Expect) -> None:
    frame = raw(connected=False).connect(**candidate.connect_headers, request_id="7")
    expect("connected-request", ", ".join(name for name, value in frame.headers.items() if value == "7") or "nothing")


@pytest.mark.scenario("connect")
@pytest.mark.once
def test_an_unknown_host(candidate: Candidate, connect: Connect, expect: Expect) -> None:
    seen, frames = "accepted", []
    try:
        connect(vhost="nowhere.invalid")
    except stompy.ConnectRefusedError as refused:
        seen, frames = "refused", [refused.frame]
    expect("connect-host", seen, *filter(None, frames))


@pytest.mark.scenario("login failure")
def test_a_wrong_passcode_is_refused_with_the_brokers_error_message(connect: Connect, expect: Expect) -> None:
    with pytest.raises(stompy.ConnectRefusedError) as refused:
        connect(passcode="wr0ng")
    assert "wr0ng" not in str(refused.value)
    assert refused.value.frame is not None
    expect("login-wrong", refused.value.frame.command, refused.value.frame)


@pytest.mark.scenario("login failure")
@pytest.mark.once
def test_what_becomes_of_the_connection_after_a_wrong_passcode(candidate: Candidate, raw: Raw, expect: Expect) -> None:
    client = raw(connected=False)
    headers = candidate.connect_headers
    error = answer(client, accept_version="1.2", **{**headers, "passcode": "wr0ng"})
    expect("login-wrong-then", fate(client, candidate), error)


@pytest.mark.scenario("login failure")
@pytest.mark.once
def test_no_login_at_all(candidate: Candidate, raw: Raw, expect: Expect) -> None:
    client = raw(connected=False)
    came = answer(client, accept_version="1.2", host=candidate.connect_headers["host"])
    expect("login-none", came.command, came)


@pytest.mark.scenario("login failure")
def test_an_odd_passcode_must_be_written_as_the_broker_reads_it(
    candidate: Candidate, connect: Connect, expect: Expect
) -> None:
    worked = []
    for name, leniency in (("raw", stompy.Leniency.NONE), ("escaped", stompy.Leniency.ESCAPED_CONNECT)):
        try:
            connect(login=ODD_LOGIN, passcode=ODD_PASSCODE, limits=stompy.Limits(leniency=leniency))
        except stompy.ConnectError:
            continue
        worked.append(name)
    expect("login-escaped", " ".join(worked))
    # With the right dialect, stompy writes it right.
    connect(login=ODD_LOGIN, passcode=ODD_PASSCODE, dialect=DIALECTS[candidate.kind])


@pytest.mark.scenario("negotiation")
@pytest.mark.once
def test_the_highest_common_version_is_spoken(connect: Connect, expect: Expect) -> None:
    offers = (("1.0", "1.1", "1.2"), ("1.0", "1.1"), ("1.1", "1.2"), ("1.0",))
    expect("negotiation", " ".join(connect(versions=offer).version for offer in offers))


@pytest.mark.scenario("negotiation")
@pytest.mark.once
@pytest.mark.parametrize(("case", "offer"), [("unknown", "9.9"), ("spaces", "1.0, 1.1, 1.2"), ("none", None)])
def test_an_unusual_offer(candidate: Candidate, raw: Raw, expect: Expect, case: str, offer: str | None) -> None:
    client = raw(connected=False)
    headers = {**candidate.connect_headers, **({"accept-version": offer} if offer else {})}
    came = answer(client, **headers)
    if came.command == "CONNECTED":
        expect(f"negotiation-{case}", came.headers.get("version", "1.0"), came)
    else:
        expect(f"negotiation-{case}", f"{came.command}, {fate(client, candidate)}", came)


@pytest.mark.scenario("login failure")
@pytest.mark.once
def test_the_passcode_of_a_whole_session_is_in_no_log(
    connect: Connect, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        connection = connect()
        connection.send(queue, "x", confirm=True)
        connection.subscribe(queue).receive(timeout=SOON)
        connection.close()
        with pytest.raises(stompy.ConnectRefusedError):
            connect(passcode="mistaken")
    assert "CONNECTED" in caplog.text
    assert PASSCODE not in caplog.text
    assert "mistaken" not in caplog.text
