from __future__ import annotations

import contextlib
import gc
import os
import pickle
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stompy.backoff import Backoff
from stompy.broker import Broker
from stompy.connection.connecting import connect
from stompy.errors import (
    ConcurrencyError,
    ConfigurationError,
    LocalProtocolError,
    OutboxBusyError,
    OutboxDamagedError,
    OutboxError,
    OutboxFullError,
    StompTimeoutError,
)
from stompy.outbox.outbox import Outbox
from tests.outbox.conftest import DEDUPE, MakesOutbox, Scripts
from tests.support.peer import until

NOBODY = "stomp://127.0.0.1:1"
"""Where no broker listens."""


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def test_a_message_arrives_as_it_was_put(outbox_to: MakesOutbox, broker: Broker) -> None:
    outbox = outbox_to(broker.url)
    text = outbox.put("/queue/a", "grüße", headers={"n": 1, "yes": True})
    outbox.put("/queue/a", {"n": 1})
    outbox.put("/queue/a", b"\x00\xff", content_type="image/png")
    with connect(broker.url) as connection:
        subscription = connection.subscribe("/queue/a")
        first, second, third = (subscription.receive(timeout=10) for _ in range(3))
    assert (first.text, first.headers["n"], first.headers["yes"]) == ("grüße", "1", "true")
    assert first.headers[DEDUPE] == text
    assert (second.json(), second.headers["content-type"]) == ({"n": 1}, "application/json")
    assert (third.body, third.headers["content-type"]) == (b"\x00\xff", "image/png")


def test_a_message_is_put_with_every_option_of_send_and_keeps_them_on_disk(
    outbox_to: MakesOutbox, broker: Broker
) -> None:
    with outbox_to(NOBODY) as outbox:
        outbox.put("/queue/a", "x", priority=7, group="g", content_length=False, persistent=False, expires=60)
        outbox.put("/queue/a", "y", dedupe_id="mine", delay=0.001)
    outbox_to(broker.url).flush()
    with connect(broker.url) as connection:
        subscription = connection.subscribe("/queue/a")
        first, second = (subscription.receive(timeout=10) for _ in range(2))
    found = {name: first.headers.get(name) for name in ("priority", "JMSXGroupID", "persistent")}
    assert found == {"priority": "7", "JMSXGroupID": "g", "persistent": "false"}
    assert 0 < int(first.headers["expires"]) / 1000 - time.time() < 60
    assert (second.headers[DEDUPE], second.headers["persistent"]) == ("mine", "true")


@pytest.mark.parametrize(
    "wrong",
    [{"priority": 10}, {"prioritty": 1}, {"content_length": 1}, {"priority": 4, "headers": {"priority": "5"}}],
)
def test_a_wrong_option_is_refused_and_nothing_stored(outbox_to: MakesOutbox, wrong: dict[str, Any]) -> None:
    outbox = outbox_to(NOBODY)
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        outbox.put("/queue/a", "x", **wrong)
    assert outbox.stats().waiting == 0


def test_an_option_that_the_broker_does_not_support_is_refused_once_the_broker_is_known(
    outbox_to: MakesOutbox,
) -> None:
    with Broker(like="rabbitmq") as rabbitmq:
        outbox = outbox_to(NOBODY, dialect="rabbitmq")
        with pytest.raises(ConfigurationError, match="delay"):
            outbox.put("/queue/a", "x", delay=1)
        outbox.close()
        outbox = outbox_to(NOBODY)
        outbox.put("/queue/a", "x", delay=1)
        outbox.put("/queue/a", "y")
        outbox.close()
        outbox = outbox_to(rabbitmq.url)
        outbox.flush()
        (letter,) = outbox.dead_letters()
        assert (letter.body, "delay" in letter.error_message) == (b"x", True)
        with pytest.raises(ConfigurationError, match="delay"):
            outbox.put("/queue/a", "x", delay=1)
        with pytest.raises(ConfigurationError, match="priority= and header 'priority'"):
            outbox.put("/queue/a", "x", priority=1, headers={"priority": 2})


def test_put_returns_without_a_broker_and_the_message_is_there_the_next_time(
    outbox_to: MakesOutbox, broker: Broker
) -> None:
    with outbox_to(NOBODY) as outbox:
        identity = outbox.put("/queue/a", "later")
        assert outbox.stats().waiting == 1
    outbox_to(broker.url).flush()
    with connect(broker.url) as connection:
        assert connection.subscribe("/queue/a").receive(timeout=10).headers[DEDUPE] == identity


def test_an_outbox_whose_files_are_removed_takes_nothing_more_and_sends_what_it_has(
    outbox_to: MakesOutbox, broker: Broker, path: str
) -> None:
    broker.close()
    outbox = outbox_to(broker.url)
    outbox.put("/queue/a", "before")
    for file in Path(path).parent.iterdir():
        file.unlink()
    with pytest.raises(OutboxError, match="was removed or replaced while it was open"):
        outbox.put("/queue/a", "after")
    broker.start()
    outbox.flush()
    assert [message.text for message in broker.browse("/queue/a")] == ["before"]


def test_each_destination_gets_the_messages_of_each_thread_in_order(outbox_to: MakesOutbox, broker: Broker) -> None:
    outbox = outbox_to(broker.url)

    def work(name: str) -> None:
        for number in range(50):
            outbox.put(f"/queue/{number % 3}", f"{name} {number}")

    threads = [threading.Thread(target=work, args=(f"{name}",)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    outbox.flush()
    with connect(broker.url) as connection:
        for queue in range(3):
            subscription = connection.subscribe(f"/queue/{queue}")
            seen: dict[str, list[int]] = {}
            for _ in range(broker.depth(f"/queue/{queue}") or 8 * len(range(queue, 50, 3))):
                name, number = subscription.receive(timeout=10).text.split()
                seen.setdefault(name, []).append(int(number))
            assert seen == {f"{name}": list(range(queue, 50, 3)) for name in range(8)}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"destination": ""}, "destination"),
        ({"headers": {"receipt": "x"}}, "receipt"),
        ({"headers": {"a": 1.5}}, "str, int or bool"),
        ({"headers": {"": "x"}}, "name"),
        ({"headers": {"a": "nul\0"}}, "NUL"),
        ({"body": object}, "JSON"),
        ({"body": "ü", "content_type": "text/plain;charset=ascii"}, "ascii"),
    ],
    ids=str,
)
def test_what_can_never_be_sent_is_refused_at_once(
    outbox_to: MakesOutbox, arguments: dict[str, Any], words: str
) -> None:
    outbox = outbox_to(NOBODY)
    with pytest.raises((LocalProtocolError, ConfigurationError), match=words):
        outbox.put(**{"destination": "/queue/a", **arguments})
    assert outbox.stats().waiting == 0


def test_limits_are_kept(outbox_to: MakesOutbox) -> None:
    outbox = outbox_to(NOBODY, max_messages=2, max_bytes=1_000)
    with pytest.raises(OutboxFullError, match="max_bytes"):
        outbox.put("/queue/a", b"x" * 1_000)
    outbox.put("/queue/a")
    outbox.put("/queue/a")
    with pytest.raises(OutboxFullError, match="max_messages"):
        outbox.put("/queue/a")
    assert outbox.stats().waiting == 2


def test_depth_and_age_are_visible(outbox_to: MakesOutbox, monkeypatch: pytest.MonkeyPatch) -> None:
    outbox = outbox_to(NOBODY)
    assert (outbox.stats().waiting, outbox.stats().oldest_age) == (0, 0.0)
    monkeypatch.setattr("stompy.outbox.outbox.now_ms", lambda: 1_000_000)
    outbox.put("/queue/a", b"x" * 100)
    monkeypatch.setattr("stompy.outbox.outbox.now_ms", lambda: 1_090_500)
    outbox.put("/queue/a", b"x" * 100)
    stats = outbox.stats()
    assert (stats.waiting, stats.oldest_age, stats.in_flight, stats.dead_letters) == (2, 90.5, 0, 0)
    assert stats.bytes > 200
    monkeypatch.setattr("stompy.outbox.outbox.now_ms", lambda: 0)  # a clock that was set back
    assert outbox.stats().oldest_age == 0.0


def test_drain_says_what_still_waits_and_why(outbox_to: MakesOutbox) -> None:
    outbox = outbox_to(NOBODY)
    outbox.flush(timeout=0)
    outbox.put("/queue/a")
    until(lambda: outbox.stats().last_error is not None)
    with pytest.raises(StompTimeoutError, match=r"1 messages .* still wait after 0 s; last: .*refused"):
        outbox.flush(timeout=0)


def test_drain_does_not_wait_for_what_is_a_dead_letter(outbox_to: MakesOutbox, scripted: Scripts) -> None:
    broker = scripted(lambda peer, frame: peer.error("no", headers={"receipt-id": frame.headers["receipt"]}))
    outbox = outbox_to(broker.url, attempts=1)
    identity = outbox.put("/queue/a", "poison", headers={"a": "b"})
    outbox.flush()
    (aside,) = outbox.dead_letters()
    assert (aside.id, aside.destination, aside.body, aside.error_message) == (identity, "/queue/a", b"poison", "no")
    assert dict(aside.headers) == {"content-type": "text/plain;charset=utf-8", "a": "b"}
    outbox.discard(identity)
    assert outbox.dead_letters() == []
    with pytest.raises(OutboxError, match="there is no dead letter"):
        outbox.retry(identity)


def test_a_running_drain_ends_with_the_outbox(outbox_to: MakesOutbox) -> None:
    outbox = outbox_to(NOBODY)
    outbox.put("/queue/a")
    heard: list[Exception] = []

    def drain() -> None:
        try:
            outbox.flush(timeout=60)
        except OutboxError as error:
            heard.append(error)

    thread = threading.Thread(target=drain)
    thread.start()
    outbox.close()
    thread.join(20)
    assert "closed" in str(heard[0])


def test_damage_found_later_stops_everything_with_its_error(outbox_to: MakesOutbox) -> None:
    broker = Broker()
    with broker:
        pass
    outbox = outbox_to(broker.url)
    identity = outbox.put("/queue/a", "first")
    outbox._store.writer.call(lambda db, ledger: db.execute("UPDATE waiting SET body = x'00'"))
    with broker:
        with pytest.raises(OutboxDamagedError, match=identity):
            outbox.flush()
        assert broker.depth("/queue/a") == 0
    for call in (lambda: outbox.put("/queue/a"), outbox.stats):
        with pytest.raises(OutboxDamagedError, match=identity):
            call()


def test_closing_is_idempotent_and_later_calls_are_refused(outbox_to: MakesOutbox) -> None:
    outbox = outbox_to(NOBODY)
    outbox.close()
    outbox.close()
    for call in (lambda: outbox.put("/queue/a"), outbox.stats, outbox.dead_letters):
        with pytest.raises(OutboxError, match="closed"):
            call()
    assert repr(outbox).endswith("closed>")


def test_closing_ends_a_long_wait_for_the_broker_at_once(outbox_to: MakesOutbox) -> None:
    outbox = outbox_to(NOBODY, backoff=Backoff(first=10_000.0, longest=10_000.0))
    outbox.put("/queue/a")
    until(lambda: outbox.stats().last_error is not None)
    outbox.close()
    assert outbox._forwarder.ended


def test_closing_takes_the_receipts_that_are_on_their_way(outbox_to: MakesOutbox, scripted: Scripts) -> None:
    held: list[tuple[Any, Any]] = []
    broker = scripted(lambda peer, frame: held.append((peer, frame)))
    outbox = outbox_to(broker.url)
    outbox.put("/queue/a", "1")
    outbox.put("/queue/a", "2")
    until(lambda: len(held) == 2)
    closing = threading.Thread(target=outbox.close)
    closing.start()
    until(lambda: not outbox._forwarder.connected)  # from here on, nothing more is sent
    for peer, frame in held:
        peer.receipt(frame)
    closing.join(20)
    assert not closing.is_alive()
    assert "waiting=0" in repr(outbox)


def kept(outbox_to: MakesOutbox) -> int:
    """Return how many messages wait when it is opened again: behind a short close a slow disk may be busy still."""
    found: list[int] = []

    def opened() -> bool:
        with contextlib.suppress(OutboxBusyError):
            found.append(outbox_to(NOBODY).stats().waiting)
        return bool(found)

    until(opened)
    return found[0]


def test_closing_against_a_deaf_broker_ends_in_time_and_keeps_the_messages(
    outbox_to: MakesOutbox, scripted: Scripts
) -> None:
    broker = scripted(lambda peer, frame: None)
    outbox = outbox_to(broker.url)
    outbox.put("/queue/a", "1")
    until(lambda: outbox.stats().in_flight == 1)
    outbox.close(timeout=0.2)
    assert outbox._forwarder.ended
    assert kept(outbox_to) == 1


def test_closing_ends_a_send_that_hangs(outbox_to: MakesOutbox, scripted: Scripts) -> None:
    release = threading.Event()
    broker = scripted(lambda peer, frame: release.wait(20))  # reads nothing more
    outbox = outbox_to(broker.url)
    try:
        for _ in range(4):
            outbox.put("/queue/a", b"x" * 4_000_000)
        until(lambda: broker.sends)
        outbox.close(timeout=0.2)
        assert outbox._forwarder.ended
    finally:
        release.set()
    assert kept(outbox_to) == 4


def test_one_outbox_at_a_time_has_the_file(outbox_to: MakesOutbox, path: str) -> None:
    first = outbox_to(NOBODY)
    os.symlink(path, path + "-link")
    for name in (path, path + "-link", os.path.relpath(path)):
        with pytest.raises(OutboxBusyError):
            Outbox(name, NOBODY)
    first.close()
    outbox_to(NOBODY)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"attempts": 0}, "attempts"),
        ({"max_messages": 1.5}, "max_messages"),
        ({"max_bytes": True}, "max_bytes"),
        ({"batch": None}, "batch"),
        ({"keep_free": -1}, "keep_free"),
        ({"backoff": (2, 1)}, "backoff"),
        ({"receipt_timeout": 1}, "no option 'receipt_timeout'"),
        ({"listeners": []}, "no option 'listeners'"),
        ({"reconnect": True}, "no option 'reconnect'"),
        ({"pascode": "x"}, "no option 'pascode'; did you mean 'passcode'"),
        ({"url": "http://localhost"}, "http"),
        ({"url": "failover:(stomp://a:1)?none=1"}, "none"),
        ({"path": ""}, "path"),
        ({"path": b"a"}, "path"),
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused_before_a_file_is_made(
    path: str, options: dict[str, Any], words: str
) -> None:
    arguments = {"path": path, "url": NOBODY, **options}
    with pytest.raises(ConfigurationError, match=words):
        Outbox(arguments.pop("path"), arguments.pop("url"), **arguments)
    assert not Path(path).exists()


def test_no_secret_and_no_address_is_in_the_files(outbox_to: MakesOutbox, path: str) -> None:
    with Broker(users={"user": "sesame-1"}) as broker:
        url = broker.url.replace("//", "//user:sesame-1@")
        outbox = outbox_to(url, login="user", passcode="sesame-1")
        outbox.put("/queue/a", "x")
        outbox.flush()
        assert "sesame" not in repr(outbox)
        contents = b"".join(file.read_bytes() for file in Path(path).parent.iterdir())
        assert b"sesame" not in contents
        assert url.rpartition(":")[2].encode() not in contents


def test_several_brokers_and_failover_addresses_will_do(outbox_to: MakesOutbox, broker: Broker) -> None:
    with outbox_to([NOBODY, broker.url]) as outbox:  # type: ignore[arg-type]
        outbox.put("/queue/a")
        outbox.flush()
    outbox = outbox_to(f"failover:({NOBODY},{broker.url})")
    outbox.put("/queue/a")
    outbox.flush()
    assert broker.depth("/queue/a") == 2


def test_an_outbox_is_not_pickled(outbox_to: MakesOutbox) -> None:
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(outbox_to(NOBODY))


def test_a_forgotten_outbox_is_closed_with_a_warning(path: str) -> None:
    outbox = Outbox(path, NOBODY)
    outbox.put("/queue/a")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del outbox
        gc.collect()
    assert any(issubclass(one.category, ResourceWarning) for one in caught)

    def free() -> bool:
        try:
            Outbox(path, NOBODY).close()
        except OutboxBusyError:
            return False
        return True

    until(free)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_after_a_fork_the_child_is_refused_and_the_parent_goes_on(outbox_to: MakesOutbox, path: str) -> None:
    outbox = outbox_to(NOBODY)
    outbox.put("/queue/a", "before")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        status = 1
        try:
            refused = 0
            for call in (lambda: outbox.put("/queue/a"), outbox.stats, outbox.flush):
                try:
                    call()
                except ConcurrencyError:
                    refused += 1
            outbox.close()
            # Freed as at the end of an interpreter: SQLite would drop the log under the parent.
            db = outbox._store.writer.__dict__.pop("_db")
            del db
            gc.collect()
            status = 0 if refused == 3 else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert Path(path + "-wal").exists()
    outbox.put("/queue/a", "after")
    outbox.close()
    assert outbox_to(NOBODY).stats().waiting == 2
