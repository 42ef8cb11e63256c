"""A forked child does not touch its parent's session, and has an answer at once, whatever lock was held at the fork."""

from __future__ import annotations

import contextlib
import inspect
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import stompy
from stompy import locks
from stompy.broker import Broker
from stompy.spark.spool.files import Files
from stompy.testing.brokers import Certificates
from stompy.transport.tls.options import Tls
from tests.scenarios.forking_programs import THINGS
from tests.support.forks import Held, locks_of
from tests.support.peer import WITHIN, until

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")

AT_ONCE = 5
"""Seconds after which a call hangs; its own timeouts are longer."""

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "send": ("/queue/a", "body"),
    "send_async": ("/queue/a", "body"),
    "browse": ("/queue/a",),
    "forward": ("/queue/a",),
    "put": ("/queue/a", "body"),
    "request": ("/queue/a",),
    "subscribe": ("/queue/b",),
    "add_listener": (stompy.Listener(),),
    "remove_listener": (stompy.Listener(),),
    "add_done_callback": (print,),
    "retry": ("id",),
    "discard": ("id",),
    "__exit__": (None, None, None),
}
"""By method; all others are called without."""
KEYWORDS: dict[str, dict[str, Any]] = {"unsubscribe": {"delete": False}}

SPECIAL = {"__repr__", "__iter__", "__enter__", "__exit__"}

REFUSALS = {"", "ConcurrencyError", "AckError", "NotConnectedError", "TransactionError", "LocalProtocolError"}
REFUSED = [
    "connection.send()",
    "connection.send_async()",
    "connection.stats()",
    "connection.flush()",
    "connection.subscribe()",
    "connection.request()",
    "next(subscription)",
    "subscription.receive()",
    "open_receipt.result()",
    "outbox.put()",
    "outbox.stats()",
]
"""By what refuses to work in a child."""


def calls_of(
    name: str, one: object, arguments: dict[str, tuple[Any, ...]]
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield everything public that can be done with an object."""
    ours = [kind for kind in type(one).__mro__ if kind.__module__.startswith("stompy")]
    for attribute, value in {name: value for kind in reversed(ours) for name, value in vars(kind).items()}.items():
        if (attribute.startswith("_") and attribute not in SPECIAL) or not hasattr(type(one), attribute):
            continue  # an attribute of which the class says that it is called otherwise is none
        given = arguments.get(f"{name}.{attribute}", arguments.get(attribute, ()))
        if attribute == "__iter__":
            yield f"next({name})", partial(_first, one)
        elif inspect.isfunction(value):
            yield f"{name}.{attribute}()", partial(getattr(one, attribute), *given, **KEYWORDS.get(attribute, {}))
        else:
            yield f"{name}.{attribute}", partial(getattr, one, attribute)


def _first(one: Any) -> object:
    return next(iter(one))


def child_says(work: Callable[[Callable[[str], None]], None]) -> list[str]:
    """Run `work` in a forked child, which is killed when it hangs, and return the lines that it printed."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of fork beside threads: our very case
        child = os.fork()
    if child == 0:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            work(lambda line: void(os.write(writing, f"{line}\n".encode())))
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read().decode()
    os.waitpid(child, 0)
    return text.splitlines()


def void(_: object) -> None:
    """Return nothing."""


def test_every_public_method_answers_at_once_in_a_forked_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "checked", False)  # they are held in no order here
    with (
        Broker() as broker,
        stompy.connect(broker.url, reconnect=stompy.Reconnect(resend_unconfirmed=True)) as connection,
    ):
        inbox = connection.subscribe("/queue/inbox", ack="client-individual")
        connection.send("/queue/inbox", "1", headers={"reply-to": "/queue/a"}, confirm=True)
        connection.send("/queue/inbox", "2", confirm=True)
        message = inbox.receive(timeout=WITHIN)
        until(lambda: inbox.queued)
        handled = connection.subscribe("/queue/handled", lambda message: None)
        done = connection.send_async("/queue/a")
        done.result(WITHIN)
        with stompy.Outbox(tmp_path / "outbox.db", broker.url) as outbox, connection.transaction() as transaction:
            outbox.put("/queue/a", "1")
            outbox.flush()
            with connection.batch() as batch:
                open_receipt = connection._links.link.receipts.make()
                connection._links.link.receipts.register(open_receipt)
                things = {
                    "connection": connection,
                    "subscription": inbox,
                    "handled": handled,
                    "message": message,
                    "receipt": done,
                    "open_receipt": open_receipt,
                    "outbox": outbox,
                    "batch": batch,
                    "transaction": transaction,
                }
                of_message = dict.fromkeys(("transaction.ack", "transaction.nack", "transaction.reply"), (message,))
                given = {**ARGUMENTS, **of_message, "transaction.forward": (message, "/queue/a")}
                calls = [call for name, one in things.items() for call in calls_of(name, one, given)]

                def work(tell: Callable[[str], None]) -> None:
                    for name, call in calls:
                        signal.alarm(AT_ONCE)
                        tell(f"? {name}")
                        try:
                            call()
                        except Exception as error:
                            tell(f"! {type(error).__name__}")
                        else:
                            tell("=")
                    tell("over")

                with Held(locks_of(list(things.values()))):
                    lines = child_says(work)
                assert lines[-1] == "over", f"it hung in {lines[-1]}"
                connection._links.link.receipts.forget(open_receipt)
        outcomes = dict(zip([line[2:] for line in lines[:-1:2]], lines[1::2], strict=True))
        assert set(outcomes) == {name for name, _ in calls}
        wrong = {name: outcome for name, outcome in outcomes.items() if outcome[2:] not in REFUSALS}
        assert not wrong
        for name in REFUSED:
            assert outcomes[name] == "! ConcurrencyError", name
        assert outcomes["message.ack()"] == outcomes["message.nack()"] == "! AckError"
        for name in ("connection.close()", "outbox.close()", "connection.__exit__()", "connection.__repr__()"):
            assert outcomes[name] == "=", name
        # The parent's session has noticed nothing.
        connection.send("/queue/inbox", "3", confirm=True)
        message.ack_async()
        assert connection.connected
    assert broker.stats().errors == 0


@pytest.mark.parametrize("reconnect", [False, True])
def test_after_a_fork_the_child_is_refused_and_the_parent_goes_on(reconnect: bool) -> None:
    with Broker() as broker, stompy.connect(broker.url, reconnect=reconnect) as connection:
        subscription = connection.subscribe("/queue/a")

        def use(tell: Callable[[str], None]) -> None:
            for call in (
                lambda: connection.send("/queue/a", "from the child"),
                lambda: subscription.receive(timeout=0),
                lambda: connection.subscribe("/queue/b"),
            ):
                try:
                    call()
                except stompy.ConcurrencyError:
                    tell("refused")
            connection.close()

        assert child_says(use) == ["refused"] * 3
        connection.send("/queue/a", "from the parent", confirm=True)
        assert subscription.receive(timeout=10).text == "from the parent"
        assert connection.connected


PROGRAM = [sys.executable, "-m", "tests.scenarios.forking_programs"]


def run(*arguments: str) -> None:
    """Run a program of `forking_programs`, which must find nothing wrong."""
    done = subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1:] == ["ok"], done.stderr[-4000:]


@pytest.mark.parametrize("thing", THINGS)
def test_what_a_child_does_to_its_copy_leaves_the_parents_alone(thing: str) -> None:
    run(thing)


@pytest.mark.parametrize("over", ["stomp", "stomp+ssl", "ws", "wss"])
def test_a_child_that_ends_leaves_the_session_of_its_parent_alone(over: str) -> None:
    secure = over in ("stomp+ssl", "wss")
    with contextlib.closing(Certificates()) as certificates:
        tls = Tls(cert=certificates.broker_file) if secure else None
        with Broker(tls=tls, ws=over in ("ws", "wss")) as broker:
            url = broker.ws_url if over in ("ws", "wss") else broker.url
            run("connection", url, *[certificates.ca_file] * secure)
        assert broker.stats().errors == 0


@pytest.mark.parametrize(
    "where", ["handler", "own_thread", "listener", "compat", "receipt", "task", "on_frame", "on_connection"]
)
def test_a_child_that_is_forked_in_a_callback_ends_with_it(where: str) -> None:
    run(f"in-{where}")


def test_a_signal_to_the_child_of_a_task_ends_that_child() -> None:
    run("terminate")


def test_a_child_does_not_keep_open_what_its_dead_parent_had(tmp_path: Path) -> None:
    with Broker() as broker:
        parent = subprocess.Popen(
            [*PROGRAM, "orphan", broker.url, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert parent.stdin is not None
        assert parent.stdout is not None
        with parent.stdin, parent.stdout:
            url = parent.stdout.readline().split()[0]
            assert parent.wait(WITHIN) == 0
            until(lambda: not broker.stats().sessions)
            with pytest.raises(stompy.ConnectError):
                stompy.connect(url)
            lock = Files(str(tmp_path)).lock("spool")
            assert lock is not None
            lock.release()
            stompy.Outbox(tmp_path / "outbox", broker.url).close()
