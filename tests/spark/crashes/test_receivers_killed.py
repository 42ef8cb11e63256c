"""Kill -9 of what fills a spool, of everything at once, and of the broker: every message is in the spool once.

By one, two and four receivers, of one destination and of two: as threads of the source's process, and by two
`stompy spool fill` side by side, of which the second waits for the end of the first. No Spark is needed: what Spark
does with a spool that is as it should be is tested elsewhere.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stompy.connection.connecting import connect
from stompy.spark.option_tables import spool_options
from stompy.spark.receivers import ReceiverPool
from stompy.spark.spool.files import Files
from stompy.spark.spool.spool import find_spool, get_spool, make_spool
from stompy.spark.spool.view import SpoolView
from tests.spark.receiver.helpers import eventually
from tests.spark.streaming_run import Target, targets
from tests.support.seed import SEED_SETTING, chance

TOP = Path(__file__).parents[3]
HOOKS = Path(__file__).parent / "site"
QUIET = 2.0
ENOUGH = 120.0


class SpoolProcesses:
    """Processes that fill a spool; those that end are started again."""

    def __init__(
        self, target: Target, queues: list[str], path: Path, mode: str, receivers: int, others: str = ""
    ) -> None:
        self.target = target
        self.queues = queues
        self.path = path
        self.mode = mode
        self.receivers = receivers
        self.others = others
        self.host = ""
        self.count = 2 if mode == "spools" and not others else 1
        self.processes: list[subprocess.Popen[bytes]] = []
        self.keep_up()

    @property
    def folder(self) -> str:
        """The spool."""
        return str(self.path / "spool")

    @property
    def given(self) -> dict[str, str]:
        """The options of the source."""
        return {
            "url": self.target.url, "destination": ",".join(self.queues), "spoolDir": self.folder + self.others,
            "receivers": str(self.receivers), "prefetch": "100", "brokerTimeout": "60", "lockTimeout": "60",
        }  # fmt: skip

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        """Start a process that fills the spool, with further arguments of `stompy spool fill`."""
        given = self.given
        if self.mode == "spools":
            command = [sys.executable, "-m", "stompy", "spool", "fill", given["destination"], given["spoolDir"]]
            command += ["--url", given["url"], "--receivers", given["receivers"], *more]
        else:
            command = [sys.executable, "-m", "tests.spark.crashes.filler", json.dumps(given)]
        if self.host:
            command = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', self.host, *command]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(TOP), str(HOOKS)))}
        with (self.path / "log").open("ab") as log:
            return subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, cwd=self.path, env=environment
            )

    def keep_up(self) -> None:
        """Start what is not running."""
        self.processes = [one for one in self.processes if one.poll() is None]
        while len(self.processes) < self.count:
            self.processes.append(self.start())

    def held(self) -> int:
        """Return how many messages the spool has, as far as is known now; starts what is not running."""
        self.keep_up()
        spool = find_spool(Files(self.folder))
        return 0 if spool is None else max((one.end - spool.first for one in spool.segments()), default=0)

    def is_claimed(self) -> bool:
        """Return whether a process has claimed the spool; starts what is not running."""
        self.keep_up()
        return any((self.path / "spool" / "epoch").glob("0*"))

    def kill_owner(self) -> None:
        """Kill the process that has the spool, its children not."""
        eventually(self.is_claimed, within=ENOUGH)
        claim = max((self.path / "spool" / "epoch").glob("0*"))
        with contextlib.suppress(ProcessLookupError):
            os.kill(json.loads(claim.read_bytes().splitlines()[0])["pid"], signal.SIGKILL)

    def kill_all(self, by: signal.Signals = signal.SIGKILL) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself, and its children with it
                os.killpg(process.pid, by)
            process.wait()

    def move(self, path: Path, host: str, by: signal.Signals) -> None:
        """End the processes by a signal, and have the spool in another folder; those to come run on another host."""
        self.kill_all(by)
        self.path = self.path.rename(path)
        self.host = host


def finish(runs: list[SpoolProcesses], count: int) -> tuple[Counter[int], Counter[int]]:
    """Take what is left, in this process; return what the spools hold, and what of it is flagged."""
    with contextlib.ExitStack() as pools:
        made = []
        for run in runs:
            run.kill_all()
            options = spool_options({**run.given, "receivers": "1", "takeOverAfter": "5"})
            made.append(ReceiverPool(options, make_spool(Files(run.folder), options.origin, shared=options.has_peers)))
            pools.callback(made[-1].stop)
        # A broker takes its time to find out that a session is dead.
        eventually(
            lambda: all(pool.quiet_for() > QUIET for pool in made) and sum(pool.writer.total for pool in made) >= count,
            within=ENOUGH,
        )
        for pool in made:
            pool.check()
    found: Counter[int] = Counter()
    flagged: Counter[int] = Counter()
    for run in runs:
        spool = get_spool(Files(run.folder))
        for segment in SpoolView(spool).index.segments:
            rows = spool.read(segment)
            bodies = [int(body) for body in rows.column("body").to_pylist()]
            found.update(bodies)
            flags = rows.column("possible_duplicate").to_pylist()
            flagged.update(body for body, flag in zip(bodies, flags, strict=True) if flag)
    unflagged = [body for body, copies in found.items() if flagged[body] < copies - 1]
    assert not unflagged, f"{len(unflagged)} copies are not flagged: {unflagged[:10]}, {SEED_SETTING}"
    assert set(found) == set(range(count)), f"lost: {sorted(set(range(count)) - set(found))[:10]}, {SEED_SETTING}"
    return found, flagged


@contextmanager
def spool_processes(
    target: Target, queues: list[str], path: Path, mode: str, receivers: int, others: str = ""
) -> Iterator[SpoolProcesses]:
    made = SpoolProcesses(target, queues, path, mode, receivers, others)
    try:
        yield made
    finally:
        made.kill_all()


def send(target: Target, queues: list[str], numbers: range) -> None:
    with connect(target.url) as connection, connection.transaction() as transaction:
        for number in numbers:
            transaction.send(queues[number % len(queues)], str(number).encode(), headers={"persistent": "true"})


def kill_broker(target: Target) -> None:
    if target.name == "embedded":
        target.broker.restart()
    else:
        target.broker.kill()
        target.broker.start()


def fill_through_faults(
    target: Target, path: Path, mode: str, receivers: int, faults: list[str], each: int, destinations: int
) -> None:
    """Fill a spool by `each` messages a fault, each of which comes at a moment of chance while they arrive."""
    queues = [f"/queue/{uuid.uuid4().hex}" for _ in range(destinations)]
    sent = 0
    chances = chance(mode, receivers, target.name)
    with spool_processes(target, queues, path, mode, receivers) as running:
        for fault in faults:
            send(target, queues, range(sent, sent + each))
            moment = sent + chances.randrange(each)
            sent += each
            eventually(lambda moment=moment: running.held() > moment, within=ENOUGH)  # type: ignore[misc]
            if fault == "broker":
                kill_broker(target)
            elif fault == "owner":
                running.kill_owner()
            else:
                running.kill_all()
        eventually(lambda sent=sent: running.held() >= sent, within=ENOUGH)  # type: ignore[misc]
        found, _ = finish([running], sent)
    assert max(found.values()) == 1, f"twice: {[one for one in found if found[one] > 1][:10]}, {SEED_SETTING}"


FAULTS = ("owner", "broker", "all")


@pytest.fixture
def killed(request: pytest.FixtureRequest) -> Iterator[Target]:
    """A broker that is killed: the embedded one is the test's own, since its threads are others then."""
    if request.param == "embedded":
        yield from targets("embedded")
    else:
        yield request.getfixturevalue(request.param)


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("killed", "mode", "receivers", "destinations"),
    [("embedded", "thread", 4, 1), ("embedded", "spools", 2, 2), ("activemq", "spools", 2, 2)],
    indirect=["killed"],
)
def test_no_message_is_lost_or_twice(
    killed: Target, tmp_path: Path, mode: str, receivers: int, destinations: int
) -> None:
    fill_through_faults(killed, tmp_path, mode, receivers, list(FAULTS), 500, destinations)


SETTINGS = list(itertools.product(("embedded", "activemq"), ("thread", "spools"), (1, 2, 4)))
HARDEST = {("activemq", "thread", 4): ("all",), ("activemq", "spools", 2): ("owner",)}
"""What is killed all the time there; elsewhere each time one of FAULTS."""


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("killed", "mode", "receivers"), SETTINGS, indirect=["killed"])
def test_of_50000_messages_none_is_lost_or_twice_through_twenty_kills(
    killed: Target, tmp_path: Path, mode: str, receivers: int
) -> None:
    kinds = HARDEST.get((killed.name, mode, receivers), FAULTS)
    faults = chance("faults", mode, receivers).choices(kinds, k=20)
    fill_through_faults(killed, tmp_path, mode, receivers, faults, 2500, 2 if receivers == 2 else 1)


def share_through_kills(target: Target, path: Path, spools: int, kills: int, count: int) -> None:
    """Fill the spools of one source from one queue; kill one of their processes so many times, at moments of chance."""
    queue = f"/queue/{uuid.uuid4().hex}"
    chances = chance("apart", spools, target.name)
    with contextlib.ExitStack() as running:
        runs = []
        for number in range(spools):
            (path / str(number)).mkdir()
            others = f",{path}/*/spool"
            mode = "spools" if number else "thread"  # one query reads all of them
            runs.append(running.enter_context(spool_processes(target, [queue], path / str(number), mode, 1, others)))
        for kill in range(kills):
            numbers = range(kill * count // kills, (kill + 1) * count // kills)
            # Half of them between a segment's name and its ACK, if one is written in time; see `site`.
            order = path / str(chances.randrange(spools)) / "spool.kill-seg-"
            if kill % 2:
                order.write_text("SIGKILL")
            send(target, [queue], numbers)
            victim = chances.choice(runs)
            moment = chances.randrange(numbers.start, numbers.stop)
            eventually(lambda moment=moment: sum(run.held() for run in runs) > moment, within=ENOUGH)  # type: ignore[misc]
            victim.kill_owner()
            order.unlink(missing_ok=True)
        eventually(lambda: sum(run.held() for run in runs) >= count, within=ENOUGH)
        found, flagged = finish(runs, count)
    twice = [body for body, copies in found.items() if copies > 1]
    sys.stdout.write(f"{target.name}, {spools} spools: {len(twice)} twice, {sum(flagged.values())} flagged\n")
    assert not twice, f"{len(twice)} twice: {twice[:10]}, {SEED_SETTING}"


@pytest.mark.timeout(240)
@pytest.mark.parametrize("killed", ["embedded"], indirect=True)
def test_of_several_spools_on_one_queue_none_has_what_another_has(killed: Target, tmp_path: Path) -> None:
    share_through_kills(killed, tmp_path, 2, 4, 2000)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("spools", [2, 4])
@pytest.mark.parametrize("killed", ["embedded", "activemq"], indirect=True)
def test_of_20000_messages_in_several_spools_none_is_lost_or_twice(killed: Target, tmp_path: Path, spools: int) -> None:
    share_through_kills(killed, tmp_path, spools, 12, 20_000)
