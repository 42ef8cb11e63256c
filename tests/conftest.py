"""What holds for every test: no thread of ours is left behind, and generated examples do not race a clock."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

import stompy.locks
from stompy.testing.containers import SOURCES
from tests.support.leaks import Watch, watching
from tests.support.matrix import ScenarioTable
from tests.support.needs import LeavingOut
from tests.support.options import add_options, chosen, take_options
from tests.support.process_brokers import process_broker
from tests.support.progress import Progress
from tests.support.stacks import Stacks, gave_up

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from tests.support.certificates import Certificates

SOURCES["process"] = process_broker  # beside those of `local_brokers`
stompy.locks.checked = True  # every lock made in a test asserts its rank

WATCH = pytest.StashKey[Watch]()
OUTSIDE = pytest.StashKey[list[str]]()
"""Where passcodes showed outside of any test."""
THREAD_PREFIX = "stompy-"
THREADS_GONE_WITHIN = 5.0
"""Seconds that threads on their way out get after a test."""


# A busy machine makes single examples slow, so that hypothesis must not judge their time; a server run always draws the
# same examples, so that a red run can be repeated.
def _generate_examples() -> None:
    examples = 1_000 if chosen.long else 50
    hypothesis.settings.register_profile("default", deadline=None, print_blob=True, max_examples=examples)
    hypothesis.settings.register_profile("ci", parent=hypothesis.settings.get_profile("default"), derandomize=True)
    hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "default")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of this project's tests."""
    add_options(parser)
    parser.addoption("--learn", metavar="FILE", help="write what brokers do to FILE instead of comparing it")


def pytest_configure(config: pytest.Config) -> None:
    """Leave out what this machine lacks, and be brief about the rest."""
    take_options(config)
    _generate_examples()
    gc.disable()  # while tests are collected, which makes no garbage
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as a shell starts what runs in its background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[OUTSIDE] = []
    config.pluginmanager.register(LeavingOut())
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Stacks(config))
    else:
        config.pluginmanager.register(ScenarioTable())
        if config.get_verbosity() <= 0:
            config.pluginmanager.register(Progress(config))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Give pytest 9.2 the name that pytest-xdist 3.8 has appended the group to: `loadgroup` reads the group there.

    It sets `_nodeid`, which was the name of a test up to pytest 9.1; now `_id` is.
    """
    for item in items:
        named = getattr(item, "_nodeid", item.nodeid)
        if named != item.nodeid:
            item._id = type(item.id).parse(named)


def _own_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith(THREAD_PREFIX)}


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Watch everything that is logged or printed for passcodes; see `tests.support.leaks`."""
    gc.enable()
    gc.freeze()  # thousands of collected tests are not looked through again and again
    with watching() as watch:
        session.config.stash[WATCH] = watch
        result = yield
    session.config.stash[OUTSIDE] += watch.take()
    return result


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that showed a passcode outside of its tests."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["outside"] = session.config.stash[OUTSIDE]
    elif session.config.stash[OUTSIDE]:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what a worker has seen."""
    node.config.stash[OUTSIDE] += getattr(node, "workeroutput", {}).get("outside", [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what showed outside of any test."""
    for found in config.stash[OUTSIDE]:
        terminalreporter.write_line(f"a passcode showed outside of any test: {found}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail the phase of a test that showed a passcode."""
    report = yield
    watch = item.config.stash[WATCH]
    for title, shown in report.sections:
        if title.endswith(call.when):  # the sections of the earlier phases come again
            watch.look(shown, title)
    found = watch.take()
    if found:
        report.outcome = "failed"
        report.longrepr = "a passcode showed in " + "\n".join(found)
    return report


@pytest.fixture(autouse=True)
def no_thread_left_behind() -> Iterator[None]:
    """Fail the test that leaves a thread of stompy running.

    Threads of wider fixtures (a broker for the whole session) run before the test starts and are none of its business.
    """
    before = _own_threads()
    yield
    give_up = time.monotonic() + THREADS_GONE_WITHIN
    for thread in _own_threads() - before:
        thread.join(max(0.0, give_up - time.monotonic()))
    left = sorted(thread.name for thread in _own_threads() - before)
    if left:
        gave_up(f"threads left behind: {', '.join(left)}")


@pytest.fixture(autouse=True)
def no_lost_wakeup() -> Iterator[None]:
    """Fail the test in which a wait would only have ended by its limit, in whatever thread."""
    yield
    lost = sorted(set(stompy.locks.lost_wakeups))
    stompy.locks.lost_wakeups.clear()
    if lost:
        pytest.fail(f"a wake-up was lost: {'; '.join(lost)}", pytrace=False)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority of this run, and what it signs."""
    from tests.support.certificates import Certificates  # most runs of single tests need none

    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Switch threads as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)
