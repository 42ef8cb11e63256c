"""The fixture that watches over every test does see a thread that is left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.needs import lacking
from tests.support.options import chosen

pytest_plugins = ["pytester"]

Verdict = Callable[[str], pytest.RunResult]

CONFTEST = Path(__file__).with_name("conftest.py").read_text(encoding="utf-8")

SESSION_WIDE = """
import threading
import pytest

from tests.support.needs import lacking

release = threading.Event()

def start(name):
    thread = threading.Thread(target=release.wait, args=(30,), name=name, daemon=True)
    thread.start()
    return thread
"""


@pytest.fixture
def verdict(pytester: pytest.Pytester) -> Verdict:
    """Run a file of tests under our conftest, with a short deadline, and return the result."""
    short = CONFTEST.replace("THREADS_GONE_WITHIN = 5.0", "THREADS_GONE_WITHIN = 0.05")
    assert short != CONFTEST
    pytester.makeconftest(short)

    def run(source: str) -> pytest.RunResult:
        pytester.makepyfile(SESSION_WIDE + source)
        return pytester.runpytest_inprocess("-p", "no:cacheprovider")

    return run


def test_a_thread_left_behind_is_named(verdict: Verdict) -> None:
    result = verdict("def test_leaks(): start('stompy-left')\ndef test_after(): release.set()")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*threads left behind: stompy-left*"])


def test_a_thread_on_its_way_out_is_waited_for(verdict: Verdict) -> None:
    verdict("def test_ends(): start('stompy-ending'); release.set()").assert_outcomes(passed=1)


def test_the_threads_of_others_are_none_of_ours(verdict: Verdict) -> None:
    result = verdict("def test_other(): start('pool-1')\ndef test_after(): release.set()")
    result.assert_outcomes(passed=2)


def test_the_threads_of_a_wider_fixture_may_stay(verdict: Verdict) -> None:
    result = verdict(
        "@pytest.fixture(scope='module')\ndef broker():\n    start('stompy-broker'); yield; release.set()\n"
        "def test_one(broker): pass\ndef test_two(broker): pass"
    )
    result.assert_outcomes(passed=2)


SHOWING = """
import logging, subprocess, sys
import pytest

from tests.support.needs import lacking
import tests.support.leaks as leaks

leaks.MARKS = ("planted-mark",)
LOG = logging.getLogger("stompy.planted")
OURS = compile("def fail(passcode):\\n    raise ValueError\\n", "/somewhere/stompy/planted.py", "exec")

def test_prints(): print("planted-mark")
def test_prints_an_error(): print("planted-mark", file=sys.stderr)
def test_logs_it_at_the_lowest_level(): LOG.debug("> %r", {"passcode": "planted-mark"})
def test_logs_it_by_name(): LOG.debug("> %(passcode)s", {"passcode": "planted-mark"})
@pytest.mark.parametrize("level", [logging.DEBUG])
def test_logs_it_for_others_too(level, caplog): caplog.set_level(level); LOG.debug("planted-mark")
def test_reads_what_it_printed(capsys):
    print("planted-mark")
    capsys.readouterr()
def test_starts_a_program_that_prints_it():
    subprocess.run([sys.executable, "-c", "print('planted' + '-mark')"], capture_output=True)
def test_logs_a_traceback_with_it_in_a_local_variable_of_ours():
    place = {}
    exec(OURS, place)
    try:
        place["fail"]("planted-mark")
    except ValueError:
        LOG.exception("failed")

def test_says_nothing(): LOG.debug("nothing"); print("nothing")
def test_has_it_in_a_variable_of_its_own():
    passcode = "planted-mark"
    try:
        raise ValueError
    except ValueError:
        LOG.exception("failed")
@pytest.mark.parametrize("level", [logging.DEBUG])
def test_other_loggers_are_none_of_ours(level): logging.getLogger("other").debug("planted-mark")
"""


def test_a_passcode_that_shows_fails_the_test_that_showed_it(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(SHOWING)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
        result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=8, passed=3)
    result.stdout.fnmatch_lines(["*a passcode showed in*planted-mark*"])


NEEDING = """
import pytest

from tests.support.needs import lacking

@pytest.mark.needs("activemq")
def test_needs_a_broker(): pass
@pytest.mark.parametrize("kind", each(["embedded", "artemis"]))
def test_needs_each(kind): pass
@pytest.mark.long
def test_takes_minutes(): pass
"""


@pytest.fixture(autouse=True)
def known_needs() -> Iterator[None]:
    """Forget what is known of this machine, before and after."""
    lacking.cache_clear()
    yield
    lacking.cache_clear()


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_what_a_machine_lacks_is_left_out_and_one_line_says_how_to_have_it(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: tuple[str, ...]
) -> None:
    monkeypatch.setenv("STOMPY_BROKERS_FROM", "none")
    monkeypatch.delenv("STOMPY_REQUIRE_BROKERS", raising=False)
    monkeypatch.setattr(chosen, "long", False)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile("from tests.support.needs import each\n" + NEEDING)
    result = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider", *workers)
    assert result.parseoutcomes()["passed"] == 1
    assert result.stdout.str().count("left out") == 3
    result.stdout.fnmatch_lines(
        ["left out 1 for lack of artemis: real brokers are switched off; `make test-brokers` has it"]
    )


def test_what_is_required_is_not_left_out(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOMPY_BROKERS_FROM", "none")
    monkeypatch.setenv("STOMPY_REQUIRE_BROKERS", "all")
    monkeypatch.setattr(chosen, "long", True)
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile("from tests.support.needs import each\n" + NEEDING)
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=4)


def test_a_worker_shows_where_a_test_hangs(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(
        "import threading, pytest\n@pytest.mark.timeout(1, method='thread')\ndef test_hangs(): threading.Event().wait()"
    )
    result = pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider", "-n", "1")
    assert result.ret != 0
    result.stderr.fnmatch_lines(["*most recent call first*", "*in test_hangs*"])


GROUPED = """
from pathlib import Path
import pytest

from tests.support.needs import each

@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("kind", each(["embedded", "like-artemis", "like-rabbitmq4"]))
def test_broker(kind, number, worker_id):
    with Path("workers").open("a") as workers:
        print(kind, worker_id, file=workers)

@pytest.mark.xdist_group("embedded")
@pytest.mark.parametrize("number", range(8))
def test_another(number, worker_id):
    test_broker("embedded", number, worker_id)
"""


def test_side_by_side_one_process_has_all_tests_of_a_kind_of_broker(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER"):
        monkeypatch.delenv(name, raising=False)
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(GROUPED)
    pytester.runpytest_subprocess("-n", "3", "--dist", "loadgroup").assert_outcomes(passed=32)
    ran = [line.split() for line in (pytester.path / "workers").read_text(encoding="utf-8").splitlines()]
    assert len(ran) == 32
    assert len({tuple(pair) for pair in ran}) == len({kind for kind, _ in ran}) == 3
