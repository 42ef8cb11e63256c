"""Rows that bind client and broker alike, tried on both ends of one conversation."""

from __future__ import annotations

import pytest

from stompy.frames.encoder import HEARTBEAT
from stompy.frames.grammar import Version
from tests.protocol.exchange import ALL, DRAFT, MODERN, V1_0, V1_1, V1_2, client_of, pair_of, server_of, splits, wire

TEXT = "𝄞 é\u200b漢"


@pytest.mark.requirement("FRM-08", "FRM-09", "A-38")
@pytest.mark.parametrize("version", ALL, ids=str)
def test_headers_and_text_beyond_ascii_make_the_full_trip(version: Version) -> None:
    client, server = pair_of(version)
    (sent,) = server.receive(client.send("SEND", {"destination": TEXT, "k": TEXT}, TEXT.encode()))
    headers = {**{name: sent.headers[name] for name in ("destination", "k")}, "message-id": "1", "subscription": "0"}
    (got,) = client.receive(server.send("MESSAGE", headers, sent.body))
    assert (got.headers["destination"], got.headers["k"], got.body.decode()) == (TEXT, TEXT, TEXT)


@pytest.mark.requirement("REP-01", "REP-02", "REP-03", "REP-04", "REP-05", "A-36")
@pytest.mark.parametrize("version", ALL, ids=str)
def test_a_header_that_was_changed_by_prepending_has_its_new_value_and_its_history(version: Version) -> None:
    pairs = [("destination", "/new"), ("destination", "/old"), ("message-id", "1"), ("subscription", "0")]
    (message,) = client_of(version).receive(wire("MESSAGE", pairs))
    (sent,) = server_of(version).receive(wire("SEND", pairs))
    for frame in (message, sent):
        assert frame.headers["destination"] == frame.headers.get("destination") == "/new"
        assert frame.headers.getall("destination") == ("/new", "/old")


@pytest.mark.requirement("HBT-09", "HBT-10", "HBT-14", "FRM-06", "A-46")
@pytest.mark.parametrize("version", [V1_1, V1_2], ids=str)
def test_a_beat_is_one_line_feed_and_no_frame(version: Version) -> None:
    assert HEARTBEAT == b"\n"
    receipt, send = wire("RECEIPT", {"receipt-id": "1"}), wire("SEND", {"destination": "/q"})
    beats = HEARTBEAT * 3 + (b"\r\n" if version is V1_2 else b"")
    for chunks in splits(beats + receipt + beats + receipt + beats):
        client = client_of(version)
        assert len([frame for chunk in chunks for frame in client.receive(chunk)]) == 2
        assert client.error is None
    for chunks in splits(beats + send + beats + send + beats):
        server = server_of(version)
        assert len([frame for chunk in chunks for frame in server.receive(chunk)]) == 2
        assert server.error is None


@pytest.mark.requirement("RCP-01", "RCP-02", "RCP-06", "A-24")
@pytest.mark.parametrize("version", ALL, ids=str)
def test_a_receipt_id_of_any_characters_comes_back(version: Version) -> None:
    client, server = pair_of(version)
    value = "r:1\\c é" + ("\n" if version in MODERN else "")
    (frame,) = server.receive(client.send("SEND", {"destination": "/q", "receipt": value}))
    (receipt,) = client.receive(server.send("RECEIPT", {"receipt-id": frame.headers["receipt"]}))
    assert receipt.headers["receipt-id"] == value
    assert (client.session, client.version) == ("s-1", version)


@pytest.mark.requirement("FRM-10", "A-02")
@pytest.mark.parametrize("version", ALL, ids=str)
def test_spaces_around_a_value_are_kept_from_1_1_on(version: Version) -> None:
    (frame,) = server_of(version).receive(wire("SEND", {"destination": " a "}))
    assert frame.headers["destination"] == (" a " if version in MODERN else "a")
    if version is not DRAFT:
        assert b"\ndestination: a \n" in client_of(version).send("SEND", {"destination": " a "})


@pytest.mark.requirement("A-40")
def test_a_padded_content_length_is_read_in_1_0_only() -> None:
    data = b"SEND\ndestination:/q\ncontent-length: 2\n\nab\0"
    assert server_of(V1_0).receive(data)[0].body == b"ab"
    for version in MODERN:
        server = server_of(version)
        assert server.receive(data) == []
        assert "content-length must be decimal digits" in str(server.error)


@pytest.mark.requirement("CON-24", "SND-02", "SRV-02", "SRV-03", "SRV-07", "BDY-10", "SND-03", "FRM-09")
@pytest.mark.parametrize("version", [V1_0, V1_1, V1_2], ids=str)
@pytest.mark.parametrize("body", [b"", b"text", b"a\0b", "𝄞 é".encode(), b"line\n"])
def test_a_message_goes_through_both_ends_unchanged(version: Version, body: bytes) -> None:
    client, server = pair_of(version)
    destination = "a b:c/é\\"
    (sent,) = server.receive(client.send("SEND", {"destination": destination, "x": "𝄞"}, body))
    assert (sent.headers["destination"], sent.body) == (destination, body)
    headers = {"destination": destination, "message-id": "1", "subscription": "0", "x": sent.headers["x"]}
    (got,) = client.receive(server.send("MESSAGE", headers, sent.body))
    assert (got.headers["destination"], got.headers["x"], got.body) == (destination, "𝄞", body)
