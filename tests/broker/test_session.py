"""One client's session: handshake, errors, heartbeats, and the end."""

from __future__ import annotations

import logging

import pytest

from stompy.broker import BrokerLimits
from stompy.frames.grammar import Leniency
from tests.broker.conftest import Serve, Served

# CONNECT


@pytest.mark.requirement("CON-02", "CON-15", "CON-17", "CON-20", "A-28", "A-29")
@pytest.mark.parametrize(
    ("offered", "agreed"),
    [(b"1.0", "1.0"), (b"1.0,1.1,2.0", "1.1"), (b"2.0,1.1,1.0", "1.1"), (b"1.0,1.1,1.2", "1.2"), (b" 1.2 ,", "1.2")],
)
def test_the_highest_common_version_is_used(served: Served, offered: bytes, agreed: str) -> None:
    client = served.dial(agreed)
    client.raw(b"CONNECT\naccept-version:%b\nhost:h\n\n\0" % offered)
    assert client.connected().headers["version"] == agreed


@pytest.mark.requirement("CON-19", "CON-12", "A-29")
@pytest.mark.parametrize("data", [b"CONNECT\n\n\0", b"CONNECT\nlogin: u\npasscode: p\n\n\0"])
def test_without_accept_version_the_session_is_1_0(served: Served, data: bytes) -> None:
    client = served.dial("1.0")
    client.raw(data)
    assert client.connected().headers["version"] == "1.0"
    client.sure("SUBSCRIBE", {"destination": "/queue/a"})
    client.raw(b"SEND\ndestination: /queue/a\npath:C\\new\n\nx\0")
    assert client.expect("MESSAGE").headers["path"] == "C\\new"


@pytest.mark.requirement("CON-21", "CON-04")
@pytest.mark.parametrize("offered", [b"9.9", b"", b"1.3,2.0"])
def test_no_common_version_is_an_error_that_lists_ours(served: Served, offered: bytes) -> None:
    client = served.dial()
    client.raw(b"CONNECT\naccept-version:%b\nhost:h\n\n\0" % offered)
    error = client.error()
    assert error.headers["version"] == "1.0,1.1,1.2"
    assert error.headers["content-type"] == "text/plain"
    assert error.body


@pytest.mark.requirement("CON-20", "CON-21")
def test_a_broker_can_be_kept_to_old_versions(serve: Serve) -> None:
    served = serve(versions=("1.0", "1.1"))
    client = served.dial("1.1")
    client.raw(b"CONNECT\naccept-version:1.0,1.1,1.2\nhost:h\n\n\0")
    assert client.connected().headers["version"] == "1.1"
    newer = served.dial()
    newer.raw(b"CONNECT\naccept-version:1.2\nhost:h\n\n\0")
    assert newer.error().headers["version"] == "1.0,1.1"


@pytest.mark.requirement("CON-05")
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_stomp_is_as_good_as_connect(served: Served, version: str) -> None:
    client = served.dial(version)
    client.raw(b"STOMP\naccept-version:%b\nhost:h\n\n\0" % version.encode())
    assert client.connected().headers["version"] == version


@pytest.mark.requirement("CON-16", "CON-17", "CON-18", "A-24", "A-07")
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_connected_names_session_and_server(served: Served, version: str) -> None:
    frames = []
    for _ in range(2):
        client = served.dial(version)
        frames.append(client.connect())
    assert frames[0].headers["session"] != frames[1].headers["session"]
    assert frames[0].headers["server"].partition("/")[0] == "stompy-broker"
    assert not any(set(":\\") & set(value) for frame in frames for value in frame.headers.values())


@pytest.mark.requirement("CON-11", "A-26")
def test_a_missing_host_is_refused_only_where_wanted(serve: Serve) -> None:
    data = b"CONNECT\naccept-version:1.2\n\n\0"
    easy = serve().dial()
    easy.raw(data)
    easy.connected()
    strict = serve(require_host=True).dial()
    strict.raw(data)
    assert "host" in strict.error().headers["message"]


@pytest.mark.requirement("CON-01", "CON-23", "BNF-12", "D10-17")
@pytest.mark.parametrize("command", ["SEND", "DISCONNECT", "MESSAGE", "CONNECTED", "FOO", "connect"])
def test_another_first_frame_is_an_error(served: Served, command: str) -> None:
    client = served.dial()
    client.raw(b"%b\ndestination:/queue/a\n\n\0" % command.encode())
    assert command.encode() in client.error().body
    assert served.depth("/queue/a") == (0, 0)


@pytest.mark.requirement("CON-02")
def test_a_second_connect_is_an_error(served: Served) -> None:
    client = served.client()
    client.say("CONNECT", {"accept-version": "1.2", "host": "h"})
    assert b"CONNECT" in client.error().body


def test_frames_in_the_same_write_as_connect_are_read_by_the_agreed_version(served: Served) -> None:
    client = served.dial()
    client.raw(
        b"CONNECT\naccept-version:1.2\nhost:h\n\n\0"
        b"SUBSCRIBE\r\nid:1\r\ndestination:/queue/a\r\n\r\n\0"
        b"SEND\ndestination:/queue/a\nk:a\\cb\n\nx\0"
    )
    client.connected()
    assert client.expect("MESSAGE").headers["k"] == "a:b"


@pytest.mark.requirement("FRM-12")
def test_frames_may_arrive_byte_by_byte(served: Served) -> None:
    client = served.dial()
    for byte in b"CONNECT\naccept-version:1.2\nhost:h\n\n\0\n\nSEND\ndestination:/queue/a\nreceipt:r\n\nx\0":
        client.raw(bytes((byte,)))
    client.connected()
    assert client.expect("RECEIPT").headers["receipt-id"] == "r"


# Login


USERS = {"alice": "s3cret:\\x", "bob": ""}


@pytest.mark.requirement("CON-13", "ESC-07")
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize(("login", "passcode"), USERS.items())
def test_a_right_login_is_let_in(serve: Serve, version: str, login: str, passcode: str) -> None:
    serve(users=USERS).client(version, login=login, passcode=passcode).disconnect()


@pytest.mark.requirement("CON-03", "CON-04", "A-23")
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"login": "alice"},
        {"passcode": "s3cret:\\x"},
        {"login": "alice", "passcode": "wr0ng"},
        {"login": "nobody", "passcode": ""},
        {"login": "nobody", "passcode": "wr0ng"},
        {"login": "alicé", "passcode": "wr0ng"},
    ],
)
def test_a_wrong_login_is_refused_and_the_passcode_stays_secret(
    serve: Serve, caplog: pytest.LogCaptureFixture, version: str, headers: dict[str, str]
) -> None:
    caplog.set_level(logging.DEBUG)
    served = serve(users=USERS, limits=BrokerLimits(login_delay=0))
    client = served.dial(version)
    with pytest.raises(AssertionError, match="access refused: wrong login or passcode") as caught:
        client.connect(**headers)
    assert client.rest() == []
    client.close()
    served.broker.close()
    for text in (caplog.text, repr(served.broker), str(caught.value)):
        assert "s3cret" not in text
        assert "wr0ng" not in text
    assert served.broker.stats().sessions_total == 0


@pytest.mark.requirement("CON-04", "A-14")
@pytest.mark.parametrize(
    ("version", "line"),
    [
        ("1.0", b"message:access refused: wrong login or passcode"),
        ("1.1", rb"message:access refused\c wrong login or passcode"),
        ("1.2", rb"message:access refused\c wrong login or passcode"),
    ],
)
def test_the_header_of_a_refused_login_keeps_its_colon(serve: Serve, version: str, line: bytes) -> None:
    client = serve(users=USERS, limits=BrokerLimits(login_delay=0)).dial(version)
    client.raw(b"CONNECT\n%b\n\0" % (b"" if version == "1.0" else b"accept-version:%b\nhost:h\n" % version.encode()))
    assert line in client.recv(20).split(b"\n")


# ERROR


@pytest.mark.requirement("SRV-10", "SRV-11", "SRV-12", "SRV-13", "SRV-15", "SRV-16", "A-15", "FRM-13")
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("command", ["FOO", "MESSAGE", "RECEIPT", "CONNECTED", "send"])
def test_after_an_error_the_stream_ends_in_every_version(served: Served, version: str, command: str) -> None:
    client = served.client(version)
    client.raw(b"%b\nreceipt:r\ndestination:/queue/a\nmessage-id:1\nreceipt-id:1\n\n\0" % command.encode())
    client.raw(b"SEND\ndestination:/queue/a\n\nx\0")
    error = client.error()
    assert error.headers["message"]
    assert error.headers["receipt-id"] == "r"
    assert error.headers["content-type"] == "text/plain"
    assert int(error.headers["content-length"]) == len(error.body)
    assert command.encode() in error.body
    assert served.depth("/queue/a") == (0, 0)


@pytest.mark.requirement("BDY-12", "BDY-16")
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_the_body_of_an_error_is_utf_8_of_a_mime_type(served: Served, version: str) -> None:
    client = served.client(version)
    client.say("UNSUBSCRIBE", {"id": "né", "receipt": "r"})
    error = client.error()
    kind, _, subtype = error.headers["content-type"].partition("/")
    assert (kind, subtype.partition(";")[0]) == ("text", "plain")
    assert "né" in error.body.decode("utf-8")


@pytest.mark.requirement("SRV-16")
def test_what_was_asked_before_an_error_is_answered_first(served: Served) -> None:
    client = served.client()
    client.raw(
        client.encoded("SEND", {"destination": "/queue/a", "receipt": "1"}, b"x")
        + b"NONSENSE\n\n\0"
        + client.encoded("SEND", {"destination": "/queue/a", "receipt": "2"}, b"y")
    )
    assert [frame.headers.get("receipt-id") for frame in client.rest()] == ["1", None]
    assert served.depth("/queue/a") == (1, 0)


@pytest.mark.requirement("A-05", "A-06", "A-11", "A-39", "A-40", "BDY-01", "BDY-04", "ESC-06", "FRM-07", "BNF-09")
@pytest.mark.parametrize(
    "data",
    [
        b"SEND\ndestination:/queue/a\nk:a\\tb\n\nx\0",
        b"SEND\ndestination:/queue/a\nk\n\nx\0",
        b"SEND\ndestination:/queue/a\n:v\n\nx\0",
        b"SEND\ndestination:/queue/a\nk:\xff\n\nx\0",
        b"SEND\ndestination:/queue/a\ncontent-length:1\n\nxy\0",
        b"SEND\ndestination:/queue/a\ncontent-length:-1\n\nx\0",
        b"SEND\nDestination:/queue/a\n\nx\0",
        b"BEGIN\ntransaction:t\n\nbody\0",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_malformed_bytes_are_an_error(served: Served, data: bytes) -> None:
    client = served.client()
    client.raw(data)
    client.error()
    assert served.depth("/queue/a") == (0, 0)


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_nuls_between_frames_are_tolerated_as_real_brokers_do(serve: Serve, version: str) -> None:
    client = serve().dial(version)
    client.raw(b"\0\n")
    client.connect()
    client.subscribe("/queue/a")
    client.raw(b"\0\0" + client.encoded("SEND", {"destination": "/queue/a"}, b"x") + b"\0\n\0")
    assert client.bodies(1) == ["x"]
    assert client.idle()
    strict = serve(limits=BrokerLimits(leniency=Leniency.NONE)).client(version)
    strict.raw(b"\0" + strict.encoded("SEND", {"destination": "/queue/a"}, b"x"))
    strict.error()


def test_leniency_tolerates_deviations(serve: Serve) -> None:
    client = serve(limits=BrokerLimits(leniency=Leniency.UNDEFINED_ESCAPES)).client()
    client.subscribe("/queue/a")
    client.raw(b"SEND\ndestination:/queue/a\nk:a\\tb\n\nx\0")
    assert client.expect("MESSAGE").body == b"x"


@pytest.mark.requirement("LIM-01", "LIM-02")
@pytest.mark.parametrize(
    "data",
    [
        b"SEND\n" + b"k:v\n" * 11,
        b"SEND\nk:" + b"v" * 200,
        b"SEND\ndestination:/queue/a\ncontent-length:51\n\n",
        b"SEND\ndestination:/queue/a\n\n" + b"x" * 51,
    ],
)
def test_past_a_limit_there_is_an_error(serve: Serve, data: bytes) -> None:
    served = serve(limits=BrokerLimits(max_headers=10, max_header_line=100, max_body=50))
    client = served.client()
    client.send("/queue/a", b"x" * 50)
    client.raw(data)
    assert "limit" in client.error().headers["message"]
    assert served.depth("/queue/a") == (1, 0)


def test_a_client_that_goes_on_sending_still_reads_the_error(serve_tcp: Serve) -> None:
    client = serve_tcp().client()
    client.raw(b"NONSENSE\n\n\0")
    for _ in range(20):
        client.raw(b"x" * 10_000)
    client.error()


# The 1.0-draft, which both sides must be set to


@pytest.mark.requirement("D10-03", "D10-15", "D10-19", "D10-22", "A-25")
def test_a_broker_of_the_draft_speaks_nothing_else(serve: Serve) -> None:
    served = serve(versions=("1.0-draft",), users={"alice": "s3cret"})
    client = served.dial("1.0-draft")
    client.raw(b"connect\nusername: alice\npasscode: s3cret\n\n\0")
    assert client.connected().headers["session"]
    client.raw(b"subscribe\nid: 1\ndestination: /queue/a\nack: client\nreceipt: r\n\n\0")
    assert client.expect("RECEIPT").headers["receipt-id"] == "r"
    client.raw(b"send\ndestination: /queue/a\n\nhello\0")
    message = client.expect("MESSAGE")
    assert message.body == b"hello"
    assert message.headers.getall("content-length") == ("5",)
    client.raw(b"ack\nmessage-id:%b\nreceipt:s\n\n\0" % message.headers["message-id"].encode())
    client.expect("RECEIPT")
    assert served.depth("/queue/a") == (0, 0)
