"""Each option of each public callable refuses six values of a wrong type, by an error that names it.

The table is made of the signatures, so that a new option is in it.
"""

from __future__ import annotations

import inspect
import os
import ssl
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
import tenacity
from opentelemetry.metrics import MeterProvider
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import TracerProvider

import stompy
import stompy.broker
import stompy.worker
from stompy.broker import Broker
from stompy.connection.connecting import Telemetry
from stompy.testing import BrokerSettings, Cut, CutAfter, Delay, FaultPlan, FaultProxy, Refuse, message
from stompy.worker.task import SqliteSeen

CLASSES: tuple[type, ...] = (
    *(stompy.Connection, stompy.Subscription, stompy.Message, stompy.Transaction, stompy.Receipt),
    *(stompy.Worker, stompy.Outbox, Broker),
)
CONSTRUCTED: tuple[type, ...] = (
    stompy.Worker,
    stompy.Outbox,
    Broker,
    SqliteSeen,
    stompy.Retry,
    stompy.Reject,
    stompy.Defer,
    stompy.OpenTelemetry,
    BrokerSettings,
    Cut,
    CutAfter,
    Delay,
    FaultPlan,
    FaultProxy,
    Refuse,
)
FUNCTIONS = (stompy.connect, message)
NOT_OPTIONS = {"self", "destination", "destinations", "body", "misspelt", "queue", "message", "task", "reason", "sent"}
"""What is required; bodies, for which `LocalProtocolError` is raised; a reason, whose failure must not be lost; and a
list that is filled."""

NAMES: dict[str, Any] = {
    **{name: getattr(stompy, name) for name in stompy.__all__},
    **{name: getattr(stompy.broker, name) for name in stompy.broker.__all__},
    **{"ssl": ssl, "os": os, "tenacity": tenacity, "Unpack": typing.Optional, "Telemetry": Telemetry},
    **{each.__name__: each for each in (MeterProvider, TextMapPropagator, TracerProvider)},
}
"""What annotations name that is imported for type checkers only."""


async def _async(*_arguments: object) -> None: ...


POOL: tuple[object, ...] = (
    3, 2.5, True, "text", b"bytes", ["a", 1], ("a", 1), {"a": 1}, object(), print, _async, stompy.Message, Broker,
    {1, 2}, slice(1),
)  # fmt: skip
"""Values of which at least six are wrong for any annotation."""


@dataclass(frozen=True)
class Option:
    """One option of a public callable."""

    owner: str
    name: str
    function: Callable[..., Any]
    hint: Any

    def wrong(self) -> list[object]:
        return [value for value in POOL if not accepts(self.hint, value)][:6]


def accepts(hint: Any, value: Any) -> bool:
    """Return what a type checker would say of a value."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any or hint is object:
        return True
    if origin in (Union, UnionType):
        return any(accepts(part, value) for part in parts)
    if origin is Literal:
        return isinstance(value, str) and value in parts
    if hint in (None, NoneType):
        return value is None
    if origin is not None and issubclass(origin, Callable):  # type: ignore[arg-type]
        return callable(value) and value is not _async
    if origin is tuple:
        return isinstance(value, tuple) and all(accepts(parts[0], each) for each in value)
    if origin is not None and issubclass(origin, Iterable) and not issubclass(origin, Mapping):
        listed = isinstance(value, (list, tuple)) or (isinstance(value, set) and origin.__name__ != "Sequence")
        return listed and all(accepts(parts[0], each) for each in value)
    if hint in (int, float):
        return isinstance(value, (int, hint)) and not isinstance(value, bool)
    if getattr(hint, "_is_protocol", False):
        return False
    return isinstance(value, origin or hint)


def options_of(owner: str, function: Any) -> Iterator[Option]:
    """Yield the options in a signature, and those of its TypedDict."""
    made = isinstance(function, type) and not is_dataclass(function)
    target = vars(function)["__init__"] if made else function
    module = vars(sys.modules[function.__module__])
    late = {name: value for name, value in NAMES.items() if name not in module}
    hints = get_type_hints(target, {**late, **module})
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name)
        if parameter.kind is parameter.VAR_KEYWORD and parameter.name not in NOT_OPTIONS:
            (kind,) = (each for each in get_args(hint) if typing.is_typeddict(each))
            place = vars(sys.modules[kind.__module__])
            for name, each in get_type_hints(kind, place, {**NAMES, **place}).items():
                yield Option(owner, name, function, each)
        elif parameter.name not in NOT_OPTIONS and parameter.default is not parameter.empty:
            yield Option(owner, parameter.name, function, hint)


def public_options() -> Iterator[Option]:
    """Yield the options of functions, of constructors and methods, and of the dataclasses that these take."""
    found = [each for function in FUNCTIONS for each in options_of(function.__name__, function)]
    for kind in CONSTRUCTED:
        found += options_of(kind.__name__, kind)
    for kind in CLASSES:
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_"):
                found += options_of(f"{kind.__name__}.{name}", method)
    kinds: dict[Any, None] = {}
    waiting = [each.hint for each in found]
    while waiting:
        hint = waiting.pop()
        waiting += get_args(hint)
        if isinstance(hint, type) and is_dataclass(hint) and hint not in kinds:
            kinds[hint] = None
            own = list(options_of(hint.__name__, hint))
            found += own
            waiting += [each.hint for each in own]
    yield from found


OPTIONS = list(public_options())


@pytest.fixture
def call(tmp_path: Path) -> Iterator[Callable[[Option, object], None]]:
    """Return what calls an option's owner with a value, and valid values for what it requires."""
    with ExitStack() as opened:
        live: dict[str, Any] = {}

        def self_of(owner: str) -> Any:
            if not live:
                broker = live["Broker"] = opened.enter_context(Broker())
                connection = live["Connection"] = stompy.connect(broker.url)
                opened.callback(connection.close)
                live["Subscription"] = connection.subscribe("/queue/a", ack="client-individual")
                connection.send("/queue/a", "x", headers={"reply-to": "/queue/b"})
                live["Message"] = live["Subscription"].receive()
                live["Transaction"] = opened.enter_context(connection.transaction())
                live["Receipt"] = connection.send_async("/queue/c")
                live["Worker"] = stompy.Worker(broker.url)
                live["Worker"].add(lambda message: None, "/queue/a", name="made")
                live["Outbox"] = stompy.Outbox(tmp_path / "live", broker.url)
                opened.callback(live["Outbox"].close)
            return live[owner]

        def run(option: Option, value: object) -> None:
            own, _, method = option.owner.partition(".")
            function = getattr(self_of(own), method) if method else option.function
            required = {
                "destination": "/queue/a", "queue": "/queue/a", "target": "/queue/b", "path": tmp_path / "outbox",
                "url": "stomp://localhost:1", "task": lambda message: None, "seconds": 1.0, "delete": False,
                "passcode": "secret", "frame": "SEND",
            }  # fmt: skip
            if function is FaultProxy:
                required["target"] = "stomp://localhost:1"
            if method in ("forward",) and own == "Transaction":
                required["message"] = self_of("Message")
            given = {
                name: required[name]
                for name, parameter in inspect.signature(function).parameters.items()
                if name in required and (parameter.default is parameter.empty or (own == "User" and name == "passcode"))
            }
            made = function("/queue/a", **{option.name: value}) if method == "task" else None
            if made is None:
                made = function(**{**given, option.name: value})
            if isinstance(made, stompy.Outbox):
                made.close()

        yield run


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: f"{option.owner}-{option.name}")
def test_six_wrong_values_are_refused_by_name(option: Option, call: Callable[[Option, object], None]) -> None:
    wrong = option.wrong()
    assert len(wrong) == 6, option.hint
    unnoticed = []
    for value in wrong:
        try:
            call(option, value)
        except stompy.ConfigurationError as error:
            if option.name not in str(error):
                unnoticed.append(f"{value!r}: {error}")
        except Exception as error:
            unnoticed.append(f"{value!r}: {error!r}")
        else:
            unnoticed.append(f"{value!r}: taken")
    assert not unnoticed


def test_the_table_has_every_owner() -> None:
    owners = {option.owner for option in OPTIONS}
    assert {"connect", "Worker", "Worker.task", "Outbox", "Outbox.put", "Broker", "BrokerLimits", "Limits"} <= owners
    assert {"Timeouts", "Backoff", "Tls", "TcpOptions", "WebSocketOptions", "Reconnect", "ResendLimits"} <= owners
    assert {"Connection.send", "Connection.subscribe", "Connection.request", "User"} <= owners
    assert len(OPTIONS) > 250


def no_message() -> None: ...


@pytest.mark.parametrize(
    ("owner", "options", "text"),
    [
        (stompy.connect, {"inbox": 100}, "connect has no option 'inbox'; write limits=Limits(max_inbox_messages=...)"),
        (stompy.connect, {"tls": True}, "tls must be a Tls, an SSLContext or None, not True; for TLS with the system's"
         " certificates write stomp+ssl:// in the address, or tls=Tls()"),
        (stompy.connect, {"tls": "ca.pem"}, "; for an authority of your own write tls=Tls(ca='ca.pem')"),
        (stompy.connect, {"client_id": 5}, "client_id must be text (str) or None, not 5"),
        (stompy.connect, {"vhost": 3}, "vhost must be text (str) or None, not 3"),
        (stompy.connect, {"headers": ["a"]}, "headers must be a mapping such as a dict or None, not list"),
        (stompy.connect, {"telemetry": 3}, "telemetry must be a Telemetry"),
        (stompy.connect, {"listeners": print}, "; write listeners=[...]"),
        (stompy.connect, {"name": 3}, "name must be text (str), not 3"),
        (stompy.connect, {"limits": 5}, "limits must be a Limits, not 5; write limits=Limits(max_inbox_messages=...)"),
        (stompy.connect, {"reconnect": 3}, "reconnect must be True, False or a Reconnect, not 3"),
        (stompy.connect, {"heartbeat": (10000, 10000)}, "heartbeat is in seconds, not milliseconds, and below 1000:"
         " (10000, 10000) would be 2.8 hours; write heartbeat=(10.0, 10.0)"),
        (stompy.connect, {"heartbeat": 10}, "; it is a pair of seconds, such as heartbeat=(10.0, 10.0)"),
        (stompy.Worker, {"heartbeat": (10000, 10000)}, "not milliseconds"),
        (stompy.Worker, {"client_id": 5}, "client_id must be text"),
        (stompy.Worker, {"urll": "stomp://localhost"}, "a worker has no option 'urll'; did you mean 'url'?"),
        (stompy.Worker, {"url": "localhost"}, "localhost"),
        (stompy.Worker, {"versions": "1.3"}, "1.3"),
        (stompy.Worker, {"http": "abc"}, "http must be 'host:port' or a port, such as 8080, not 'abc'"),
        (stompy.Worker, {"retry_delay": 0.1}, "a worker has no option 'retry_delay'"),
        (stompy.Reconnect, {"backoff": (5, 1)}, "backoff must be a Backoff, not (5, 1); write backoff=Backoff(first="),
        (stompy.Reconnect, {"backoff": 0.1}, "backoff must be a Backoff, not 0.1; write backoff=Backoff(first="),
        (stompy.Worker().add, {"retry_delay": 0.1}, "a task has no option 'retry_delay'; write backoff=Backoff("),
        (stompy.Worker().add, {"threads": 4}, "a task has no option 'threads'; did you mean 'concurrency'?"),
        (stompy.Worker().add, {"retries": 3}, "a task has no option 'retries'; did you mean 'attempts'?"),
        (stompy.Worker().add, {"timeout": 3}, "a task has no option 'timeout'; did you mean 'time_limit'?"),
        (stompy.connect, {"token": "x"}, "connect has no option 'token'; did you mean 'passcode'?"),
        (stompy.connect, {"timeout": 3}, "connect has no option 'timeout'; write timeouts=Timeouts(connect=...)"),
        (stompy.Worker().add, {"seen": 5}, "seen must be a SeenStore, which has __contains__ and add or None, not 5"),
        (stompy.Worker().add, {"dead_letter": 3}, "dead_letter must be text (str) or None, not 3"),
        (stompy.Worker().add, {"task": no_message}, "a task is called with the message"),
        (stompy.Worker().add, {"task": _async}, "a task must not be async"),
        (stompy.Worker().task, {"destinations": (no_message,)}, "write @worker.task('/queue/NAME')"),
    ],
)  # fmt: skip
def test_the_error_says_what_was_meant(owner: Any, options: dict[str, Any], text: str) -> None:
    arguments: Any = options.pop("destinations", ())
    if getattr(owner, "__name__", "") == "add":
        arguments = (options.pop("task", print), "/queue/a")
    with pytest.raises(stompy.ConfigurationError) as caught:
        owner(*arguments, **options)
    assert text in str(caught.value)


@pytest.mark.parametrize("destinations", [(3,), (["/queue/a"],), (None,), (no_message,)])
def test_destinations_of_a_task_are_text(destinations: Any) -> None:
    with pytest.raises(
        stompy.ConfigurationError, match=r"destinations must be a tuple of which each is text \(str\), not"
    ):
        stompy.Worker().add(print, *destinations)


def test_a_connection_is_not_made_by_its_class() -> None:
    with pytest.raises(stompy.ConfigurationError, match="connections are made by"):
        stompy.Connection()


def test_prometheus_takes_workers() -> None:
    wrong: Any = 3
    with pytest.raises(stompy.ConfigurationError, match="a tuple of which each is a Worker"):
        stompy.PrometheusCollector(wrong)


def test_a_fault_plan_takes_faults() -> None:
    wrong: Any = 3
    with pytest.raises(
        stompy.ConfigurationError, match="faults must be a tuple of which each is a FrameFault, a CutAfter"
    ):
        FaultPlan(wrong)


def test_passcodes_of_a_test_broker_are_not_shown() -> None:
    wrong: Any = ["me:secret"]
    with pytest.raises(stompy.ConfigurationError, match="users must be a mapping such as a dict or None, not list"):
        BrokerSettings(users=wrong)


def test_versions_of_a_worker_may_be_an_iterator() -> None:
    with Broker() as broker:
        worker = stompy.Worker(broker.url, versions=iter(("1.1",)))
        worker.add(print, "/queue/a")
        with worker:
            assert worker.health().connected
