"""The write queue by itself, and its writer over a memory pair."""

from __future__ import annotations

import logging
import socket
import threading
import time
from typing import Any

import pytest

from stompy.broker.queues import Item
from stompy.broker.session_state import OutgoingMessage
from stompy.broker.write_queue import WriteQueue, WriterThread
from stompy.deadline import Deadline
from stompy.errors import ConnectionLostError
from stompy.protocol.heartbeat import Heartbeats, HeartbeatTimer
from stompy.transport.base import DirectTransport, Transport
from stompy.transport.sockets import SocketTransport
from stompy.transport.websocket.transport import WebSocketTransport
from tests.broker.conftest import a_consumer, a_message, a_queue, a_session_state
from tests.support.memory import MemoryTransport, memory_pair

WITHIN = 20.0


def _write_queue(
    *, max_bytes: int = 100, max_frames: int = 3
) -> tuple[WriteQueue[OutgoingMessage], dict[WriteQueue[OutgoingMessage], None]]:
    touched: dict[WriteQueue[OutgoingMessage], None] = {}
    return WriteQueue(max_bytes=max_bytes, max_frames=max_frames, touched=touched), touched


def _wake(write_queue: WriteQueue[OutgoingMessage], touched: dict[WriteQueue[OutgoingMessage], None]) -> None:
    """What the router does at the end of a turn."""
    touched.clear()
    write_queue.wake()


class _Writing:
    """A write queue, its writer, and the other end of the stream."""

    def __init__(self, transport: Transport, peer: Transport) -> None:
        at_once = isinstance(transport, DirectTransport)
        limits = {"max_bytes": 10_000_000, "max_frames": 100_000} if at_once else {}
        self.write_queue, self.touched = _write_queue(**limits)
        self.transport, self.peer = transport, peer
        self.asked = threading.Event()
        self.writer = WriterThread(
            self.write_queue, transport, on_room=self.asked.set, stalled=WITHIN, name="stompy-broker-0-writer"
        )
        self.writer.start()

    def answer(self, data: bytes) -> None:
        self.write_queue.answer(data)
        _wake(self.write_queue, self.touched)

    def finish(self) -> bytes:
        """End the writer, and return what the peer has not read."""
        self.write_queue.finish()
        _wake(self.write_queue, self.touched)
        data = bytearray()
        while part := self.peer.recv(Deadline(WITHIN)):
            data += part
        self.writer.join(WITHIN)
        self.transport.close()
        self.peer.close()
        return bytes(data)


def _written() -> _Writing:
    return _Writing(*memory_pair(1_000))


@pytest.fixture(params=["tcp", "ws"])
def at_once(request: pytest.FixtureRequest) -> _Writing:
    """A write queue over a socket, on which whoever wakes the writer writes first."""
    socks = socket.socketpair()
    socks[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    ours, theirs = (SocketTransport(sock, peer="test") for sock in socks)
    if request.param == "tcp":
        return _Writing(ours, theirs)
    return _Writing(WebSocketTransport(ours, client=False), WebSocketTransport(theirs, client=True))


def test_it_enters_itself_once_for_a_turn() -> None:
    write_queue, touched = _write_queue()
    write_queue.answer(b"1")
    write_queue.answer(b"2")
    assert [*touched] == [write_queue]
    _wake(write_queue, touched)
    write_queue.answer(b"3")
    assert [*touched] == [write_queue]


@pytest.mark.parametrize("answers", [[b"x" * 100], [b"1", b"2", b"3"]])
def test_it_is_full_by_bytes_or_by_frames_until_all_is_taken(answers: list[bytes]) -> None:
    write_queue, _ = _write_queue()
    for answer in answers:
        assert write_queue.has_room()
        write_queue.answer(answer)
    assert not write_queue.has_room()
    assert write_queue.take(0) == (answers, True)
    assert write_queue.has_room()
    assert write_queue.take(0) == ([], False)


@pytest.mark.parametrize("limits", [{"max_frames": 3}, {"max_bytes": 160}])
def test_only_unwanted_messages_are_withdrawn_and_make_room(limits: dict[str, Any]) -> None:
    session = a_session_state(**limits)
    write_queue = session.write_queue
    consumer = a_consumer(session, a_queue(), mode="auto")
    items = [Item(a_message(), order) for order in range(2)]
    consumer.deliver(items[0])
    write_queue.answer(b"receipt")
    consumer.deliver(items[1])
    assert not write_queue.has_room()
    withdrawn = write_queue.withdraw(lambda delivery: delivery.item is items[0])
    assert [delivery.item for delivery in withdrawn] == [items[0]]
    assert write_queue.has_room()
    taken = write_queue.take(0)
    assert taken is not None
    assert taken[0][0] == b"receipt"
    assert len(taken[0]) == 2


def test_a_finished_outbox_takes_nothing_and_gives_what_it_has() -> None:
    write_queue, _ = _write_queue()
    write_queue.answer(b"1")
    write_queue.finish()
    write_queue.answer(b"2")
    assert not write_queue.has_room()
    assert write_queue.take(None) == ([b"1"], False)
    assert write_queue.take(None) is None


@pytest.mark.parametrize("end", ["take", "finish", "give_up"])
def test_who_waits_for_answers_to_be_fetched_is_woken(end: str) -> None:
    write_queue, touched = _write_queue()
    write_queue.wait_for_answers()
    write_queue.answer(b"x" * 100)
    thread = threading.Thread(target=write_queue.wait_for_answers, daemon=True)
    thread.start()
    thread.join(0.02)
    assert thread.is_alive()
    if end == "take":
        write_queue.take(0)
    elif end == "finish":
        write_queue.finish()
        _wake(write_queue, touched)
    else:
        write_queue.give_up()
    thread.join(WITHIN)
    assert not thread.is_alive()


def test_the_writer_writes_in_order_and_ends_its_direction() -> None:
    written = _written()
    for number in range(3):
        written.answer(b"%d" % number)
    assert written.finish() == b"012"


def test_the_writer_says_when_there_is_room_for_one_who_waited() -> None:
    written = _written()
    written.write_queue.answer(b"x" * 100)
    assert not written.write_queue.has_room()
    _wake(written.write_queue, written.touched)
    assert written.asked.wait(WITHIN)
    written.finish()


def test_the_writer_ends_when_the_peer_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    written = _written()
    written.peer.close()
    with caplog.at_level(logging.ERROR):
        written.answer(b"x")
        written.writer.join(WITHIN)
    assert caplog.text == ""
    assert not written.write_queue.has_room()


def test_a_stuck_writer_is_freed_by_shutdown() -> None:
    written = _written()
    written.answer(b"x" * 10_000)
    assert len(written.peer.recv(Deadline(WITHIN))) > 0
    written.transport.shutdown()
    written.writer.join(WITHIN)
    assert not written.write_queue.has_room()


def test_an_unforeseen_fault_of_the_writer_is_logged_and_ends_the_session(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: MemoryTransport, data: bytes, deadline: Deadline) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(MemoryTransport, "sendall", broken)
    written = _written()
    written.answer(b"x")
    written.writer.join(WITHIN)
    assert "the writer failed" in caplog.text
    assert written.transport.recv(Deadline(WITHIN)) == b""
    monkeypatch.undo()
    with pytest.raises(ConnectionLostError):
        written.transport.sendall(b"x", Deadline(WITHIN))


def test_what_the_kernel_does_not_take_at_once_is_written_in_order(at_once: _Writing) -> None:
    written = at_once
    frames = [b"%05d" % number * 100 for number in range(1_000)]
    for frame in frames:
        written.answer(frame)
    assert written.finish() == b"".join(frames)


def test_many_threads_write_at_once_and_each_keeps_its_order(at_once: _Writing) -> None:
    written = at_once
    lock = threading.Lock()  # as the router's, around what adds frames

    def add(name: int) -> None:
        for number in range(500):
            with lock:
                written.write_queue.answer(b"%d-%03d;" % (name, number))
                written.touched.clear()
            written.write_queue.wake()

    threads = [threading.Thread(target=add, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    data = bytearray()
    while data.count(b";") < 2_000:
        data += written.peer.recv(Deadline(WITHIN))
    for thread in threads:
        thread.join(WITHIN)
    written.finish()
    entries = bytes(data).split(b";")[:-1]
    for name in range(4):
        own = [entry for entry in entries if entry.startswith(b"%d-" % name)]
        assert own == [b"%d-%03d" % (name, number) for number in range(500)]


def test_a_peer_that_is_gone_is_found_by_the_writer(at_once: _Writing, caplog: pytest.LogCaptureFixture) -> None:
    written = at_once
    written.peer.close()
    with caplog.at_level(logging.ERROR):
        written.answer(b"x")
        written.writer.join(WITHIN)
    assert caplog.text == ""
    assert not written.write_queue.has_room()
    written.transport.close()


def test_heartbeats_begin_though_the_frame_before_them_was_written_at_once(at_once: _Writing) -> None:
    written = at_once
    written.answer(b"1")
    assert written.peer.recv(Deadline(WITHIN)) == b"1"
    written.writer.beat(HeartbeatTimer(Heartbeats(send=0.01), time.monotonic()))
    written.answer(b"2")
    data = b""
    while data.count(b"\n") < 2:
        data += written.peer.recv(Deadline(WITHIN))
    assert data.replace(b"\n", b"") == b"2"
    written.finish()
