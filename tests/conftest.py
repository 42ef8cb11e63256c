"""What holds for every test: no thread of ours is left behind, and generated examples do not race a clock."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import hypothesis
import pytest

import stompy.link.locks
from tests.support.leaks import Watch, watching

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from tests.support.certificates import Certificates

stompy.link.locks.checked = True  # every lock made in a test asserts its rank

WATCH = pytest.StashKey[Watch]()
THREAD_PREFIX = "stompy-"
THREADS_GONE_WITHIN = 5.0
"""Seconds that threads on their way out get after a test."""

# A busy machine makes single examples slow, so that hypothesis must not judge their time; a server run always draws the
# same examples, so that a red run can be repeated.
hypothesis.settings.register_profile("default", deadline=None, print_blob=True)
hypothesis.settings.register_profile("ci", parent=hypothesis.settings.get_profile("default"), derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "default")


def _own_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith(THREAD_PREFIX)}


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Watch everything that is logged or printed for passcodes; see `tests.support.leaks`."""
    with watching() as watch:
        session.config.stash[WATCH] = watch
        result = yield
    left = watch.take()
    if left:
        session.testsfailed += 1
        print("a passcode showed outside of any test:", *left, sep="\n")
    return result


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
        pytest.fail(f"threads left behind: {', '.join(left)}", pytrace=False)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority of this run, and what it signs."""
    from tests.support.certificates import Certificates  # most runs of single tests need none

    return Certificates(tmp_path_factory.mktemp("certificates"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes minutes, unless STOMPY_LOAD asks for it."""
    if os.environ.get("STOMPY_LOAD"):
        return
    heavy = [item for item in items if item.get_closest_marker("load")]
    if heavy:
        config.hook.pytest_deselected(items=heavy)
        items[:] = [item for item in items if item.get_closest_marker("load") is None]
