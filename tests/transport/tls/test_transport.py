"""What is particular to a stream over TLS; that it is a stream like any other is in `test_base.py`."""

from __future__ import annotations

import gc
import hashlib
import logging
import socket
import ssl
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from stompy.deadline import Budget, Deadline
from stompy.errors import ConnectionLostError, SendTimeoutError, StompTimeoutError, TlsError
from stompy.transport.base import RECV_SIZE, Transport
from stompy.transport.sockets import SocketTransport
from stompy.transport.tcp import TcpListener
from stompy.transport.tls.context import client_context, server_context
from stompy.transport.tls.options import TlsVersion
from stompy.transport.tls.transport import TlsListener, TlsTransport
from tests.support.certificates import Certificates
from tests.support.seed import chance
from tests.transport.conftest import Calling, ample


class Ends:
    """A client and a server over a pair of sockets, and the sockets."""

    def __init__(self, certificates: Certificates, version: TlsVersion) -> None:
        sockets = socket.socketpair()
        self.sockets = sockets
        for sock in sockets:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
        carriers = [SocketTransport(sock, peer=peer) for sock, peer in zip(sockets, ("server", "client"), strict=True)]
        self.client = TlsTransport(carriers[0], client_context(certificates.client_options()), server_name="localhost")
        self.server = TlsTransport(
            carriers[1], server_context(certificates.broker_options(version=version)), server_side=True
        )

    def do_handshake(self, calling: Calling) -> None:
        serving = calling(lambda: self.server.do_handshake(ample()))
        self.client.do_handshake(ample())
        serving.result()

    def close(self) -> None:
        self.client.close()
        self.server.close()


@pytest.fixture(params=["1.2", "1.3"])
def apart(request: pytest.FixtureRequest, calling: Calling, certificates: Certificates) -> Iterator[Ends]:
    """Both ends, before the handshake."""
    ends = Ends(certificates, request.param)
    yield ends
    ends.close()


@pytest.fixture
def ends(apart: Ends, calling: Calling) -> Ends:
    """Both ends of a session."""
    apart.do_handshake(calling)
    return apart


class TestHandshake:
    def test_a_servers_is_done_by_its_first_reads(self, apart: Ends, calling: Calling) -> None:
        reader = calling(lambda: apart.server.recv(ample()))
        assert "in the handshake" in repr(apart.client)
        apart.client.do_handshake(ample())
        apart.client.sendall(b"hello", ample())
        assert reader.result() == b"hello"
        assert "open" in repr(apart.client)

    def test_a_server_may_be_interrupted_by_its_deadline_and_go_on(self, apart: Ends, calling: Calling) -> None:
        with pytest.raises(StompTimeoutError):
            apart.server.recv(Deadline(0.01))
        self.test_a_servers_is_done_by_its_first_reads(apart, calling)

    def test_nothing_is_sent_before_there_is_a_session(self, apart: Ends) -> None:
        with pytest.raises(ConnectionLostError, match="the TLS handshake with client is not done") as caught:
            apart.server.sendall(b"secret", ample())
        assert caught.value.outcome == "not-sent"
        apart.server.shutdown_write()
        assert apart.sockets[0].recv(100) == b""

    def test_what_is_no_tls_is_answered_with_an_alert_and_the_end(
        self, apart: Ends, calling: Calling, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.INFO, logger="stompy.transport"):
            apart.sockets[0].send(b"CONNECT\naccept-version:1.2\n\n\0")
            with pytest.raises(ConnectionLostError, match="speaks STOMP on this port, not TLS") as caught:
                apart.server.recv(ample())
        assert caught.value.outcome == "not-sent"
        assert "not TLS" in caplog.text
        # What is sent on is read and dropped until the peer has ended too, so that the alert is not destroyed.
        rest = calling(lambda: apart.server.recv(ample()))
        rest.until_blocked()
        apart.sockets[0].send(b"more")
        apart.sockets[0].shutdown(socket.SHUT_WR)
        assert rest.result() == b""
        wait = [apart.sockets[0].recv(100) for _ in range(2)]
        assert wait[0][:2] == b"\x15\x03"
        assert wait[1] == b""

    @pytest.mark.parametrize("stream", [b"", b"\x16\x03\x01", b"\x16\x03\x01\x40\x00\x01"])
    def test_a_handshake_that_breaks_off_is_the_end(self, stream: bytes, apart: Ends) -> None:
        apart.sockets[0].send(stream)
        apart.sockets[0].shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionLostError, match="the TLS handshake with client"):
            apart.server.recv(ample())


class TestTheEnd:
    def test_a_closing_alert_is_said_where_there_is_time_for_it(
        self, ends: Ends, caplog: pytest.LogCaptureFixture
    ) -> None:
        ends.client.close()
        with caplog.at_level(logging.DEBUG, logger="stompy.transport"):
            assert ends.server.recv(ample()) == b""
        assert "without a closing alert" not in caplog.text

    def test_a_stream_that_ends_without_one_ends_at_once(self, ends: Ends, caplog: pytest.LogCaptureFixture) -> None:
        ends.sockets[0].shutdown(socket.SHUT_WR)
        with caplog.at_level(logging.DEBUG, logger="stompy.transport"):
            assert ends.server.recv(ample()) == b""
        assert "without a closing alert" in caplog.text
        assert ends.server.recv(ample()) == b""
        ends.server.sendall(b"the other direction goes on", ample())
        assert ends.client.recv(ample()) == b"the other direction goes on"

    @pytest.mark.parametrize("rudely", [False, True])
    def test_a_peer_that_hangs_up_before_its_first_byte_may_not_have_liked_our_certificate(
        self, rudely: bool, certificates: Certificates, calling: Calling
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            ours = socket.create_connection(listening.getsockname())
            theirs, _ = listening.accept()
        client = TlsTransport(
            SocketTransport(ours, peer="server"),
            client_context(certificates.client_options()),
            server_name="localhost",
        )
        server = TlsTransport(
            SocketTransport(theirs, peer="client"), server_context(certificates.broker_options()), server_side=True
        )
        serving = calling(lambda: server.do_handshake(ample()))
        client.do_handshake(ample())
        serving.result()
        if rudely:
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        theirs.close()
        with pytest.raises(TlsError, match="closed the connection right after the TLS handshake") as caught:
            client.recv(ample())
        assert caught.value.reason == "closed"
        client.close()
        server.close()

    def test_a_stream_cut_within_a_record_yields_what_was_whole(self, ends: Ends) -> None:
        ends.client.sendall(b"whole", ample())
        ends.client.tls.write(b"cut")
        ends.sockets[0].send(ends.client._outgoing.read()[:9])
        ends.sockets[0].shutdown(socket.SHUT_WR)
        assert ends.server.recv(ample()) == b"whole"
        assert ends.server.recv(ample()) == b""

    @pytest.mark.parametrize("stream", [b"\0\0ERROR in the middle", b"\x17\x03\x03\x00\x20" + b"x" * 32])
    def test_a_stream_that_was_tampered_with_is_lost_after_what_was_whole(self, stream: bytes, ends: Ends) -> None:
        ends.client.sendall(b"whole", ample())
        ends.sockets[0].send(stream)
        assert ends.server.recv(ample()) == b"whole"
        for _ in range(2):
            with pytest.raises(ConnectionLostError, match="TLS failed") as caught:
                ends.server.recv(ample())
            assert isinstance(caught.value.__cause__, ssl.SSLError)

    def test_writing_on_after_that_is_lost_too(self, ends: Ends) -> None:
        ends.sockets[1].send(b"no record at all")
        with pytest.raises(ConnectionLostError):
            ends.client.recv(ample())
        with pytest.raises(ConnectionLostError, match="TLS failed") as caught:
            ends.client.sendall(b"x", ample())
        assert caught.value.outcome == "not-sent"

    def test_bytes_that_crossed_our_closing_alert_are_delivered(self, ends: Ends) -> None:
        ends.server.sendall(b"crossed", ample())
        assert ends.client.recv(ample()) == b"crossed"
        ends.server.sendall(b"behind", ample())
        ends.client._incoming.write(ends.client._underlying.recv(ample()))  # received, and not yet decrypted
        ends.client.shutdown_write()
        ends.server.sendall(b" and after", ample())
        ends.server.shutdown_write()
        received = b""
        while part := ends.client.recv(ample()):
            received += part
        assert received == b"behind and after"

    def test_a_closing_alert_never_splits_a_write(self, ends: Ends) -> None:
        seen: list[bytes] = []

        class Watching:
            def __init__(self, carrier: Transport) -> None:
                self.carrier = carrier

            def send(self, data: bytes, deadline: Deadline) -> int:
                ends.client.shutdown()  # by another thread, while this one writes
                return len(data)

            def sendall(self, data: bytes, deadline: Budget) -> None:
                seen.append(data)

            def __getattr__(self, name: str) -> object:
                return getattr(self.carrier, name)

        ends.client._underlying = Watching(ends.client._underlying)  # type: ignore[assignment]
        ends.client.sendall(b"x", ample())
        assert seen == []

    def test_a_shutdown_in_the_middle_of_a_write_says_nothing_into_it(self, ends: Ends, calling: Calling) -> None:
        writer = calling(lambda: ends.client.sendall(bytes(1 << 22), ample()))
        writer.until_blocked()
        ends.client.shutdown()
        with pytest.raises(ConnectionLostError, match="was shut down"):
            writer.result()
        received = 0
        while part := ends.server.recv(ample()):  # whole records only, and no complaint
            received += len(part)
        assert 0 < received < 1 << 22


class TestWriting:
    def test_a_write_that_timed_out_is_finished_by_the_next_one(self, ends: Ends, calling: Calling) -> None:
        with pytest.raises(SendTimeoutError) as caught:
            ends.client.sendall(b"a" * (1 << 20), Deadline(0.02))
        assert caught.value.outcome == "unknown"
        with pytest.raises(SendTimeoutError) as caught:  # what was left before still fills the window
            ends.client.sendall(b"b", Deadline(0.02))
        assert caught.value.outcome == "not-sent"
        reading = calling(partial(read_all, ends.server))
        ends.client.sendall(b"c", ample())
        ends.client.shutdown_write()
        received = reading.result()
        assert received.strip(b"a") == b"c"
        assert 0 < len(received) < 1 << 20

    def test_a_write_to_a_peer_that_is_gone_sent_nothing(self, ends: Ends) -> None:
        ends.sockets[0].close()  # not by the transport, which would know
        with pytest.raises(ConnectionLostError) as caught:
            ends.client.sendall(b"x", ample())
        assert caught.value.outcome == "not-sent"

    def test_a_peer_that_reads_drop_by_drop_does_not_stretch_the_deadline(self, ends: Ends) -> None:
        class Drops:
            peer = "server"

            def __init__(self) -> None:
                self.taken = 0

            def send(self, data: bytes, deadline: Deadline) -> int:
                self.taken += 1
                return 1

        drops = Drops()
        real, ends.client._underlying = ends.client._underlying, drops  # type: ignore[assignment]
        try:
            with pytest.raises(SendTimeoutError) as caught:
                ends.client.sendall(b"x" * 100, Deadline(0))
        finally:
            ends.client._underlying = real
        assert caught.value.outcome == "unknown"
        assert drops.taken == 1

    def test_what_tls_says_by_itself_goes_out_with_the_next_write(self, ends: Ends) -> None:
        # An answer to the peer's KeyUpdate, say; the reader must not write it.
        ends.client.tls.write(b"first ")
        ends.client.sendall(b"second", ample())
        assert ends.server.recv(ample()) == b"first second"

    def test_nothing_is_written_for_nothing(self, ends: Ends) -> None:
        ends.client.sendall(b"", ample())
        ends.client.sendall(b"x", ample())
        assert ends.server.recv(ample()) == b"x"


def read_all(transport: Transport) -> bytes:
    parts = []
    while part := transport.recv(ample()):
        parts.append(part)
    return b"".join(parts)


class TestReading:
    def test_one_read_takes_many_records_and_no_more_than_it_may(self, ends: Ends, calling: Calling) -> None:
        def write() -> None:
            ends.client.sendall(b"x" * (3 << 20), ample())
            ends.client.shutdown_write()

        writer = calling(write)
        sizes = []
        while part := ends.server.recv(ample()):
            sizes.append(len(part))
        writer.result()
        assert sum(sizes) == 3 << 20
        assert max(sizes) <= RECV_SIZE
        assert max(sizes) > 16_384

    def test_no_more_than_it_may_also_of_what_was_decrypted_ahead(self, ends: Ends) -> None:
        ends.client._plain = [b"x" * RECV_SIZE, b"yz"]
        assert ends.client.recv(ample()) == b"x" * RECV_SIZE
        assert ends.client.recv(ample()) == b"yz"


def test_a_two_way_flood_with_writers_on_both_sides_arrives_as_it_was(apart: Ends, calling: Calling) -> None:
    apart.do_handshake(calling)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        pieces = [chance("pieces").randbytes(size) for size in (1, 100, 16_384, 16_385, 300_000, 1_000_000)] * 4

        def write(end: TlsTransport) -> None:
            for piece in pieces:
                end.sendall(piece, ample())
            end.shutdown_write()

        writers = [calling(partial(write, end)) for end in (apart.client, apart.server)]
        readers = [calling(partial(read_all, end)) for end in (apart.client, apart.server)]
        digests = {hashlib.sha256(reader.result()).hexdigest() for reader in readers}
        assert digests == {hashlib.sha256(b"".join(pieces)).hexdigest()}
        for writer in writers:
            writer.result()
    finally:
        sys.setswitchinterval(before)


def test_a_listener_tells_where_it_listens_and_makes_servers(certificates: Certificates) -> None:
    tcp = TcpListener()
    listener = TlsListener(tcp, server_context(certificates.broker_options()))
    assert listener.address == tcp.address
    assert "open" in repr(listener)
    with socket.create_connection(tcp.address):
        accepted = listener.accept()
    assert isinstance(accepted, TlsTransport)
    assert accepted.peer.startswith("127.0.0.1:")
    accepted.close()
    listener.close()
    assert listener.accept() is None
    assert "closed" in repr(listener)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="descriptors cannot be counted here")
def test_closed_sessions_leave_no_descriptor(certificates: Certificates, calling: Calling) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for version in ("1.2", "1.3"):
        ends = Ends(certificates, version)
        ends.do_handshake(calling)
        reader = calling(ends.client.recv)
        reader.until_blocked()
        ends.client.shutdown()
        reader.result()
        ends.close()
    del ends
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
