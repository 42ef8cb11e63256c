"""A flood both ways over one TLS session, half of it sent by listeners: nothing stalls, nothing is changed."""

from __future__ import annotations

import hashlib
import threading

import pytest

import stompy
from stompy.broker import Broker
from stompy.transport.tls.options import TlsVersion
from tests.support.certificates import Certificates
from tests.support.seed import chance

PIECE = 250_000
SIZES = (1, 300, 16_384, 16_385, 70_000, PIECE)
"""Of the first bodies; all others have PIECE bytes."""

AHEAD = 64
"""Messages in flight at most, so that the broker need not keep the flood."""


def flood(url: str, tls: stompy.Tls, *, size: int) -> tuple[str, str]:
    """Send `size` bytes, which a listener sends on, to where another one reads them; return the digests of both ends.

    So the session carries twice `size` bytes in either direction.
    """
    sent, received = hashlib.sha256(), hashlib.sha256()
    room = threading.Semaphore(AHEAD)
    with stompy.connect(url, tls=tls) as conn:

        def send_on(message: stompy.Message) -> None:
            conn.send("/queue/back", message.body)

        def take(message: stompy.Message) -> None:
            received.update(message.body)
            room.release()

        conn.subscribe("/queue/there", send_on, ack="auto")
        conn.subscribe("/queue/back", take, ack="auto")
        noise, left, number = chance("flood").randbytes(2 * PIECE), size, 0
        while left:
            length = min(left, SIZES[number] if number < len(SIZES) else PIECE)
            start = number % PIECE
            body = noise[start : start + length]
            assert room.acquire(timeout=60), "the flood came to a stop"
            conn.send("/queue/there", body)
            sent.update(body)
            left -= length
            number += 1
        for _ in range(AHEAD):
            assert room.acquire(timeout=60), "the flood came to a stop"
    return sent.hexdigest(), received.hexdigest()


@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_twenty_megabytes_over_tls_arrive_as_they_were(version: TlsVersion, certificates: Certificates) -> None:
    with Broker(tls=certificates.broker_options(version=version)) as broker:
        sent, received = flood(broker.url, certificates.client_options(), size=5_000_000)
    assert sent == received


@pytest.mark.load
@pytest.mark.timeout(300)
@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_half_a_gigabyte_each_way_over_tls_arrives_as_it_was(version: TlsVersion, certificates: Certificates) -> None:
    with Broker(tls=certificates.broker_options(version=version)) as broker:
        sent, received = flood(broker.url, certificates.client_options(), size=250_000_000)
    assert sent == received
