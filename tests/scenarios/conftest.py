"""One set of scenarios, every kind of broker, every version of STOMP.

A test that takes `candidate`, if only by way of `connect` or `raw`, runs once a kind and version; one that is marked
`once`, once a kind. What a broker is expected to do stands in `expected/`, and `expect` compares.

| option or variable | |
|---|---|
| `--brokers` | the kinds to run, separated by commas; all by default |
| `--transport` | `tcp` (the default), `tls12`, `tls13`, `mtls`, `unix`, `ws` or `wss` |
| `STOMPY_REQUIRE_BROKERS` | the kinds that must not be skipped, or `all` |

`--learn FILE` writes what brokers do to a file, one JSON object a line, instead of comparing it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from dataclasses import astuple, dataclass
from typing import Any

import pytest

import stompy
from stompy.testing.brokers import BrokerUnavailableError
from stompy.testing.containers import missing
from tests.scenarios.expected.facts import FACTS
from tests.scenarios.expected.model import CLASSIC, KINDS, LIKE, VERSIONS, fits
from tests.scenarios.expected.profiles import DIFFERS
from tests.support.candidates import WEB, Candidate, start
from tests.support.matrix import CELL, Cell
from tests.support.needs import each
from tests.support.options import chosen
from tests.support.rawclient import RawClient

SOON = 20.0
"""Seconds that something may take before the test fails."""

GRADES = pytest.StashKey[list[str]]()


def chosen_kinds() -> list[str]:
    """Return the kinds that the option names."""
    names = [name.strip() for name in chosen.brokers.split(",") if name.strip()]
    if "all" in names:
        return list(KINDS)
    unknown = sorted(set(names) - {*KINDS, *LIKE})
    if unknown:
        raise pytest.UsageError(f"--brokers: no such kind of broker: {', '.join(unknown)}")
    return names


# The brokers.


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "candidate" in metafunc.fixturenames:
        kinds = chosen_kinds() or [*KINDS, *LIKE]
        metafunc.parametrize(
            "candidate",
            each(kind for kind in (*KINDS, *LIKE) if kind in kinds and _concerned(kind, metafunc)),
            indirect=True,
            scope="session",
        )
        if "version" in metafunc.fixturenames and metafunc.definition.get_closest_marker("once") is None:
            limited = metafunc.definition.get_closest_marker("versions")
            metafunc.parametrize("version", limited.args if limited else VERSIONS, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests for brokers of which none was chosen."""
    without = [item for item in items if "NOTSET" in item.name]
    if without:
        config.hook.pytest_deselected(items=without)
        items[:] = [item for item in items if item not in without]


def _concerned(kind: str, metafunc: pytest.Metafunc) -> bool:
    """Whether a test is for some kind of broker; for the stand-ins, unless it is about the client or the load."""
    transports = metafunc.definition.get_closest_marker("transports")
    if transports is not None and chosen.transport not in transports.args:
        return False
    if kind in CLASSIC and chosen.transport in WEB and metafunc.definition.get_closest_marker("binary") is not None:
        return False
    limited = metafunc.definition.get_closest_marker("kinds")
    if limited is not None:
        return kind in limited.args
    return kind not in LIKE or metafunc.definition.get_closest_marker("scenario") is not None


@pytest.fixture(scope="session")
def candidate(request: pytest.FixtureRequest) -> Iterator[Candidate]:
    """A running broker that takes the login above; one at a time."""
    with ExitStack() as stack:
        try:
            running = stack.enter_context(start(request.param))
        except BrokerUnavailableError as error:
            missing(request.param, "; ".join(error.reasons))
        yield running


# Opening connections.

Connect = Callable[..., stompy.Connection]
Raw = Callable[..., RawClient]


@pytest.fixture
def version(request: pytest.FixtureRequest) -> str:
    """The version of STOMP that the test speaks."""
    spoken: str = getattr(request, "param", VERSIONS[-1])
    return spoken


@pytest.fixture
def connect(candidate: Candidate, version: str) -> Iterator[Connect]:
    """Return a function that connects to the broker in the test's version; what it made is closed at the end."""
    with ExitStack() as stack:

        def make(*, url: str = candidate.url, **options: Any) -> stompy.Connection:
            spoken = options.get("versions", version)
            settings = {**candidate.options_in(spoken), "heartbeat": (0, 0), "versions": spoken, **options}
            return stack.enter_context(stompy.connect(url, **settings))

        yield make


@pytest.fixture
def raw(candidate: Candidate, version: str) -> Iterator[Raw]:
    """Return a function that opens a connection for hand-made frames; `connected=False` leaves CONNECT to the test."""
    with ExitStack() as stack:

        def make(*, connected: bool = True, version: str = version, **headers: str) -> RawClient:
            client = stack.enter_context(RawClient(candidate.dial(), version))
            if connected:
                client.connect(**{**candidate.connect_headers, **headers})
            return client

        yield make


@pytest.fixture
def queue() -> str:
    """Return a queue that no other test uses."""
    return f"/queue/{uuid.uuid4().hex}"


@pytest.fixture
def topic() -> str:
    """Return a topic that no other test uses."""
    return f"/topic/{uuid.uuid4().hex}"


# Comparing.


@dataclass(frozen=True)
class Expect:
    """Compares what a test has seen with what is expected of the broker.

    Attributes:
        kind: of broker.
        version: spoken.
        scenario: of the test.
        grades: collects how the answers are graded.
        learn: the file to write to instead of comparing.
    """

    kind: str
    version: str
    scenario: str
    grades: list[str]
    learn: str | None

    def __call__(self, name: str, seen: object, *frames: stompy.Frame) -> None:
        """Fail unless the fact `name` is as `seen`, and each expected frame is among `frames`."""
        if self.learn is not None:
            self._learn(self.learn, name, seen, frames)
            return
        fact = FACTS[name]
        assert fact.scenario == self.scenario, f"{name} belongs to scenario {fact.scenario!r}"
        answer = fact.answer(LIKE.get(self.kind, self.kind), self.version)
        shown = "".join(f"\n  {frame!r}" for frame in frames)
        assert answer is not None, f"nothing is expected of {self.kind} in {self.version} for {name}: {seen!r}{shown}"
        if (self.kind, self.version, name) in DIFFERS:
            as_expected = seen == answer.does and all(
                any(fits(one, frame) for frame in frames) for one in answer.frames
            )
            assert not as_expected, f"{name}, {self.kind} in {self.version}, is now as that of the real broker"
            return
        self.grades.append(answer.grade)
        assert seen == answer.does, f"{name}, {self.kind} in {self.version}: {seen!r}, not {answer.does!r}{shown}"
        for pattern in answer.frames:
            assert any(fits(pattern, frame) for frame in frames), f"{name}, {self.kind}: none is\n{pattern}{shown}"

    def _learn(self, path: str, name: str, seen: object, frames: tuple[stompy.Frame, ...]) -> None:
        shown = [
            [frame.command, list(frame.headers.items()), frame.body[:80].decode(errors="replace")] for frame in frames
        ]
        line = {"fact": name, "kind": self.kind, "version": self.version, "seen": seen, "frames": shown}
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


@pytest.fixture
def expect(request: pytest.FixtureRequest, candidate: Candidate, version: str) -> Expect:
    """Return what compares with the expectations."""
    mark = request.node.get_closest_marker("scenario")
    grades = request.node.stash.setdefault(GRADES, [])
    return Expect(candidate.kind, version, mark.args[0] if mark else "", grades, request.config.getoption("learn"))


# The table at the end.


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note on the report which cell of the table the test belongs to."""
    report = yield
    callspec = getattr(item, "callspec", None)
    if callspec is None or "candidate" not in callspec.params:
        return report
    kind, version = callspec.params["candidate"], callspec.params.get("version")
    mark = item.get_closest_marker("scenario")
    candidate = getattr(item, "funcargs", {}).get("candidate")
    cell = Cell(
        mark.args[0] if mark else "the client itself",
        kind,
        version,
        mark=_mark(report, item) if report.when == "call" or not report.passed else "",
        seconds=call.duration,
        title=candidate.product if candidate is not None else kind,
    )
    report.user_properties.append((CELL, astuple(cell)))
    return report


def _mark(report: pytest.TestReport, item: pytest.Item) -> str:
    if report.failed:
        return "FAIL"
    if report.skipped:
        return "-"
    grades = item.stash.get(GRADES, [])
    return "no" if "no" in grades else "own" if "own" in grades else "ok"
