"""Workers with child processes in a simulated world: their kills and signals, and the judge of their ends."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from signal import SIGKILL, SIGTERM

import stompy
from stompy.testing.world import AbandonedError, Event, Thread
from stompy.worker import WorkerExit
from tests.simulation.processes import System
from tests.simulation.workers import CLOSE, SETTLED_WITHIN, Runner, Watch

GRACE = 10.0
"""Seconds beyond the time for tasks after which a parent kills its children."""
ORPHANED = 30.0
"""Seconds in which children end that have lost their parent: one may connect at that moment."""
READY = 40.0
"""Seconds in which each child is there and takes messages, when nothing breaks."""
AGAIN = 0.7
"""Seconds until a second signal, which is not taken for the first."""
AT_ONCE = 0.5
"""Seconds in which all ends after it."""
LOOK = 0.5


class Service:
    """Runs a worker with child processes, and again after its end, as a manager of services does."""

    def __init__(self, system: System, watch: Watch, name: str, note: Callable[[str], None]) -> None:
        self._system, self._watch, self._name, self._note = system, watch, name, note
        self._random = system.random
        self._signalled: list[float] = []
        """When SIGTERM was sent to the parent that runs."""
        self._worker: stompy.Worker | None = None
        """That of the parent."""
        self._processed = 0
        self._orphans: set[str] = set()
        """Children whose parent was killed."""
        self._over = False
        self.events = Thread(self._disturb, f"events of {name}")
        self._threads = [self.events]

    # The processes.

    def _program(self, runner: Runner, url: str, timeouts: stompy.Timeouts) -> int:
        worker = runner.worker(url, timeouts)
        self._system.kept.append(worker)
        if self._system.current.process == self._name:
            self._worker = worker
        try:
            return worker.run()
        except AbandonedError:
            raise
        except BaseException as error:
            self._watch.breaches.append(f"{self._system.current.process} has ended by {error!r}")
            return 1

    def run(self, url: str, timeouts: stompy.Timeouts, over: Event) -> None:
        """Run it until all is over."""
        system, name = self._system, self._name
        self.events.start()
        while not over.is_set():
            runner = Runner(self._watch, name, self._note)
            self._signalled.clear()
            self._processed, self._worker = 0, None
            system.start(name, partial(self._program, runner, url, timeouts))
            while not system.switch(lambda: name in system.codes or over.is_set(), LOOK, f"the end of {name}"):
                self._look()
            if over.is_set() and name not in system.codes and not self._signalled:
                self._stop()
            system.switch(lambda: name in system.codes, CLOSE + GRACE + 5.0, f"the end of {name}")
            if name not in system.codes:
                self._watch.breaches.append(f"{name} does not end, although it got SIGTERM")
                return
            system.switch(lambda: False, LOOK, "its start")
        for thread in self._threads:
            thread.join()

    def _counted(self) -> int:
        task = None if self._worker is None else self._worker.health().tasks.get("task")
        return 0 if task is None else task.counts.get("processed", 0)

    def _look(self) -> None:
        """See that the parent counts what its children have processed, of those too that have ended."""
        count, watch = self._counted(), self._watch
        returned = sum(tried.result == "returned" for tried in watch.tried if tried.life == watch.lives)
        if self._name not in self._system.codes and not self._processed <= count <= returned:
            watch.breaches.append(f"{count} messages are processed, and {self._processed} were; {returned} returned")
        self._processed = count

    def _stop(self) -> None:
        """Stop it, as all is over, and all has been calm."""
        system, watch = self._system, self._watch
        self._over = True
        end = system.now + READY
        while not self._ready():
            if system.now > end:
                alive, worker = system.children(self._name), self._worker
                text = f"{alive} live and {worker and worker.health()} after {READY:g} s without a fault"
                watch.breaches.append(
                    f"{self._name} does not have its {watch.program.children} child processes: {text}"
                )
                break
            system.switch(lambda: False, LOOK, "the children")
        for _ in range(SETTLED_WITHIN):
            self._look()
            if watch.counts(self._processed):
                break
            system.switch(lambda: False, 1.0, "the reports of children")
        self._terminate()

    def _ready(self) -> bool:
        """Return whether each child is there and takes messages."""
        program = self._watch.program
        if self._worker is None or len(self._system.children(self._name)) != program.children:
            return False
        # Those that end after seconds may never all be past their start.
        return program.max_seconds is not None or self._worker.health().ready

    def _terminate(self) -> None:
        self._note(f"{self._name} gets SIGTERM")
        self._signalled.append(self._system.now)
        self._system.signal(self._name, SIGTERM)

    # Kills and signals.

    def _disturb(self) -> None:
        system, name = self._system, self._name
        for at, what in self._watch.program.events:
            system.switch(lambda: False, max(0.0, 1000.0 + at - system.now), "the next event")
            if what == "kill child":
                system.switch(self._busy, 2.0, "a task")
                system.switch(lambda: False, self._random.choice((0.0, 0.05, 0.5)), "a moment")
                self._kill_child()
            elif what == "kill parent":
                self._note(f"{name} is killed")
                system.signal(name, SIGKILL)
            elif what == "signal child":
                if children := system.children(name):
                    child = self._random.choice(children)
                    self._note(f"{child} gets SIGTERM")
                    system.signal(child, SIGTERM)
            elif name not in system.codes and not self._signalled:
                processes = [name, *(system.children(name) if what == "stop all" else ())]
                for process in self._random.sample(processes, len(processes)):
                    if process == name:
                        self._terminate()
                    else:
                        system.signal(process, SIGTERM)
                if what == "stop twice":
                    system.switch(lambda: name in system.codes, AGAIN, "a moment")
                    if name not in system.codes:
                        self._terminate()

    def _busy(self) -> list[str]:
        children = self._system.children(self._name)
        return [tried.process for tried in self._watch.tried if tried.result == "running" and tried.process in children]

    def _kill_child(self) -> None:
        if killable := self._busy() or self._system.children(self._name):
            child = self._random.choice(killable)
            self._note(f"{child} is killed")
            self._system.signal(child, SIGKILL)

    # Their ends.

    def ended(self, process: str, code: int, faultless: bool) -> None:
        """Look at the end of one of its processes."""
        self._note(f"{process} has ended with {code}")
        watch, system = self._watch, self._system
        if process != self._name:
            if code < 0:
                watch.died(process)
            else:
                watch.left(process)
                limited = watch.program.max_messages is not None or watch.program.max_seconds is not None
                in_order = code in (WorkerExit.OK, WorkerExit.UNFINISHED)
                if in_order and not (limited or self._signalled or process in self._orphans):
                    watch.breaches.append(f"{process} has ended with {code}, and its parent has not asked it to")
            return
        children = system.children(process)
        if code == -SIGKILL:
            self._orphans.update(children)
            self._threads.append(Thread(partial(self._see_end, children), f"orphans of {process}"))
            self._threads[-1].start()
            return
        if children:
            watch.breaches.append(f"{process} has ended before {children}")
        if not self._signalled:
            watch.breaches.append(f"{process} has ended by itself, with {code}")
            return
        took = system.now - self._signalled[0]
        if took > CLOSE + GRACE + 1.0:
            watch.breaches.append(f"{process} took {took:.1f} s to end after SIGTERM")
        calm = (faultless or self._over) and watch.program.time_limit is None
        codes = {0} if calm else {0, WorkerExit.UNFINISHED, WorkerExit.STUCK}
        if len(self._signalled) > 1:
            codes |= {128 + SIGTERM}
            if system.now > self._signalled[1] + AT_ONCE:
                watch.breaches.append(f"{process} took {system.now - self._signalled[1]:.1f} s to end after the second")
        if code not in codes and code != -SIGTERM:  # before it handles signals, or when it does no more
            watch.breaches.append(f"{process} has ended with {code} after SIGTERM")

    def _see_end(self, orphans: list[str]) -> None:
        """See that children end that have lost their parent."""
        codes = self._system.codes
        if not self._system.switch(lambda: all(each in codes for each in orphans), ORPHANED, "the orphans"):
            left = [each for each in orphans if each not in codes]
            self._watch.breaches.append(f"{left} live {ORPHANED:g} s after their parent was killed")
