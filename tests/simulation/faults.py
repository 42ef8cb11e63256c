"""Faults that are planted in stompy, each a text of a module with another one in its place, to see that they are found.

`plant` has to be called before the module is imported. The name of the fault comes from the environment, so that child
processes plant it too.
"""

# ruff: noqa: E501 - texts of other modules stand here as they are

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

PLANTED = "STOMPY_PLANTED_FAULT"


@dataclass(frozen=True)
class Fault:
    """Texts that occur once in a module, each with what stands in its place."""

    module: str
    changes: tuple[tuple[str, str], ...]


def _fault(module: str, *changes: tuple[str, str]) -> Fault:
    return Fault(f"stompy.{module}", changes)


FAULTS: dict[str, Fault] = {
    "a receipt is registered after the write": _fault(
        "link.writer",
        ("                self._link.receipts.register(receipt)\n", "                pass\n"),
        (
            "            if on_written is not None:\n                on_written()",
            "            if receipt is not None:\n                self._link.receipts.register(receipt)\n"
            "            if on_written is not None:\n                on_written()",
        ),
    ),
    "two threads write at once": _fault(
        "link.writer", ("            if self._turns or not lock.acquire(False):\n", "            if False:\n")
    ),
    "a frame of which a part is out is written again": _fault(
        "link.writer", ("turn.data, sent = frames[len(written)][sent:], 0", "turn.data, sent = frames[len(written)], 0")
    ),
    "a frame is written between the parts of another": _fault(
        "link.writer",
        (
            "                if mine or not (polite or first.begun):\n",
            "                if True:\n",
        ),
    ),
    "a lost session confirms its receipts": _fault(
        "link.receipts",
        (
            "            if receipt._store is None or not receipt._store.will_resend(receipt):\n"
            "                resolve(receipt, error)",
            "            if receipt._store is None or not receipt._store.will_resend(receipt):\n"
            "                resolve(receipt, None)",
        ),
    ),
    "a RECEIPT confirms the oldest pending frame": _fault(
        "link.receipts",
        (
            "        if (receipt := self._pending.get(receipt_id)) is None:\n",
            "        receipt_id = next(iter(self._pending.copy()), receipt_id)\n"
            "        if (receipt := self._pending.get(receipt_id)) is None:\n",
        ),
    ),
    "waiting for a receipt has no limit": _fault(
        "link.receipts",
        ("        await_outcome(self, deadline, seconds)\n", "        await_outcome(self, Deadline(None), seconds)\n"),
    ),
    "the reader is not woken when the inbox has room": _fault(
        "link.flow",
        ("        if self.paused and not self._blocked():\n            self._condition.notify_all()", ""),
    ),
    "a lost session is reported as not sent": _fault(
        "connection.transaction",
        ('raise for_caller(error, "unknown", text) from error', 'raise for_caller(error, "not-sent", text) from error'),
    ),
    "COMMIT leaves before its frames are confirmed": _fault(
        "connection.transaction",
        (
            "            for receipt in self._write_all():\n                receipt.result(deadline.remaining())",
            "            self._write_all()",
        ),
    ),
    "an aborted transaction is committed": _fault(
        "connection.transaction",
        (
            'self._link.writer.request("ABORT", {"transaction": self.id})',
            'self._link.writer.request("COMMIT", {"transaction": self.id})',
        ),
    ),
    "the end of a batch drops what is in it": _fault(
        "connection.resend_buffer",
        (
            "        if not self._data:\n            return\n",
            "        if len(self._data) < 3:\n            return\n        self._data.pop()\n",
        ),
    ),
    "copies carry no id": _fault(
        "connection.resend_buffer",
        ("headers = {**link.dialect.dedupe_headers(self.identity), **self._headers}", "headers = {**self._headers}"),
    ),
    "a flush waits for a frame whose call has failed": _fault(
        "link.receipts",
        (
            '            resolve(receipt, StompError("the call that asked for this receipt has failed"))\n',
            "            pass\n",
        ),
    ),
    "a flush wakes before a refused frame counts": _fault(
        "link.receipts",
        (
            "            receipt._error = error\n        # Before",
            "            receipt._error, receipt._resolved = error, True\n"
            "            if receipt._event is not None:\n                receipt._event.set()\n        # Before",
        ),
        ("        if receipt._resolved:\n            return False\n        receipt._error = error\n", ""),
    ),
    "what is to be resent is confirmed at once": _fault(
        "connection.resend_buffer",
        (
            "            return self._end_error is None and receipt.id in self._pending",
            "            pass\n        resolve(receipt, None)\n        return True",
        ),
    ),
    "a request goes to the next session, without its reply queue": _fault(
        "connection.sending",
        (
            "            self._sender.write(link, frame, DEFAULT if timeout is None else deadline.remaining())\n",
            "            self._sender.send(destination, body, None, {**headers, **own}, options)\n",
        ),
    ),
    "a reply answers the oldest request": _fault(
        "connection.sending",
        (
            "self.pending.pop(correlation, None) if correlation is not None else None",
            "self.pending.pop(next(iter(self.pending.copy()), correlation), None)",
        ),
    ),
    "a request is written although its inbox has ended": _fault(
        "connection.sending", ("            if inbox.closed:  #", "            if False:  #")
    ),
    "a reply is kept for another request": _fault(
        "connection.sending",
        (
            "            request.answer = message\n            request.set()\n",
            "            self.pending[correlation] = request\n",
        ),
    ),
    "a handler goes on after its subscription has ended": _fault(
        "connection.routing",
        ("(source is None or not source.unsubscribing or link.dialect.ack_after_unsubscribe)", "True"),
    ),
    "a listener misses all but the first message of a read": _fault(
        "connection.routing",
        (
            "                        for listener in listeners:\n",
            "                        for listener in listeners if message is messages[0] else ():\n",
        ),
    ),
    "a listener is called for an error behind the next message": _fault(
        "connection.listeners",
        (
            "            if self.dispatcher.is_current():\n                run_logged(job)\n            else:\n"
            "                self.dispatcher.put(job)",
            "            self.dispatcher.put(job)",
        ),
    ),
    "a listener is called twice for the end of a session": _fault(
        "connection.link_manager",
        (
            "            self._announced = None\n            self._subscriptions.link_lost(reason)\n",
            "            self._subscriptions.link_lost(reason)\n",
        ),
    ),
    "a receipt forgets a callback that comes beside its outcome": _fault(
        "link.receipts",
        (
            "        with self._lock:\n            if not self._resolved:\n"
            "                self._callbacks = [*(self._callbacks or ()), callback]\n                return\n",
            "        if not self._resolved:\n            with self._lock:\n"
            "                self._callbacks = [*(self._callbacks or ()), callback]\n            return\n",
        ),
    ),
    "a message that was written goes to the next session too": _fault(
        "connection.sending",
        (
            "                    self._failed.watch(handle)\n                return handle\n            except SessionError",
            "                    self._failed.watch(handle)\n                if encoder.link.end_reason is None:\n"
            "                    return handle\n            except SessionError",
        ),
    ),
    "handled before the handler has run": _fault(
        "connection.routing",
        (
            "                            handler(message)\n",
            '                            if delivery.ack_mode == "handled":\n                                delivery.acker.handled(message)\n'
            "                            handler(message)\n",
        ),
    ),
    "a handler that raised has handled its message": _fault(
        "connection.routing",
        (
            '        delivery.acker.raised(message, nack=delivery.source is not None and delivery.source.on_exception == "nack")',
            "        delivery.acker.handled(message)",
        ),
    ),
    "received is handled": _fault(
        "connection.subscription",
        (
            "            active.hold(message)\n        return message",
            "            message._delivery.acker.handled(message)\n        return message",
        ),
    ),
    "an inbox wakes nobody": _fault(
        "connection.subscriptions", ("            self._condition.notify(len(messages))\n", "")
    ),
    "subscriptions are not restored": _fault(
        "connection.subscriptions",
        (
            "            active = [each for each in self._subscriptions.values() if each.confirmed and not each.unsubscribing]\n",
            "            active = [each for each in self._subscriptions.values() if each.id is None]\n",
        ),
    ),
    "the last message of a read is dropped": _fault(
        "connection.routing",
        (
            "        for headers, key, body in rows:\n            if key",
            "        for headers, key, body in rows[: max(1, len(rows) - 1)]:\n            if key",
        ),
    ),
    "a job of the dispatcher wakes nobody": _fault(
        "connection.routing",
        (
            "            self._jobs.append(job)\n            self._condition.notify()",
            "            self._jobs.append(job)",
        ),
    ),
    "a silent peer is never noticed": _fault(
        "protocol.heartbeat",
        ("        self._silence = heartbeats.silence_allowed(tolerance)", "        self._silence = None"),
    ),
    "heartbeats are not sent": _fault(
        "protocol.heartbeat", ("        self._beat_after = heartbeats.beat_after", "        self._beat_after = None")
    ),
    "a broker keeps nothing of what a lost session had": _fault(
        "broker.router", ("            lost.append(delivery)\n", "            pass\n")
    ),
    "a redelivery does not say so": _fault(
        "broker.session_state", ('lead + b"redelivered:true\\n"', 'lead + b"redelivered:false\\n"')
    ),
    "a worker acknowledges before the task has run": _fault(
        "worker.slot",
        (
            "                value = self._call(job)\n        except _Replaced",
            '                delivery_of(message).acker.acknowledge(message, "ACK", shared=True)\n'
            "                value = self._call(job)\n        except _Replaced",
        ),
        (
            '                delivery_of(message).acker.acknowledge(message, "ACK", shared=self._task.key is None)\n',
            "                pass\n",
        ),
    ),
    "a retry is sent outside of the transaction": _fault(
        "worker.failure",
        (
            "                transaction.send(copy.destination, copy.body, **options_of(copy, dialect))",
            "                connection.send(copy.destination, copy.body, **options_of(copy, dialect))",
        ),
    ),
    "a retry is sent after the acknowledgement": _fault(
        "worker.failure",
        (
            '    if "ACK" in dialect.transacted and dialect.atomic_commit:\n',
            "    if True:\n        for message, copy in pairs:\n            message.ack()\n"
            "            connection.send(copy.destination, copy.body, **options_of(copy, dialect))\n"
            "        return\n    if True:\n",
        ),
    ),
    "messages of one key run side by side": _fault(
        "worker.slot", ("                if line.busy:\n", "                if not line:\n")
    ),
    "the next message of a key is not started": _fault(
        "worker.slot", ("        self._ready.put(following)\n", "        pass\n")
    ),
    "attempts are not counted": _fault(
        "worker.failure",
        ("    headers[ATTEMPT] = str(attempt.number + decision.counts)", "    headers[ATTEMPT] = str(attempt.number)"),
    ),
    "one attempt too many": _fault("worker.failure", ("attempt >= task.attempts:", "attempt > task.attempts:")),
    "a retry is not delayed": _fault(
        "worker.failure", ("    if copy.delay > 0:\n        options", "    if copy.delay > 1e9:\n        options")
    ),
    "a message past its time limit is settled twice": _fault(
        "worker.slot",
        (
            "        return self._holder.setdefault(None, holder) is holder",
            "        self._holder[None] = holder\n        return True",
        ),
    ),
    "a transactional task is acknowledged outside of its transaction": _fault(
        "worker.slot", ("            transaction.ack(job.message)\n", "            job.message.ack()\n")
    ),
    "a child that died is not replaced": _fault(
        "worker.processes",
        (
            "            child.not_before = time.monotonic() + (0.0 if code == WorkerExit.OK else _POLL)\n",
            "            child.not_before = time.monotonic() + 1e9\n",
        ),
    ),
    "what a dead child has counted is forgotten": _fault(
        "worker.processes",
        ("                self._past = _sum([self._past, ended])\n", "                del ended\n"),
    ),
    "what a dead child has counted is counted twice": _fault(
        "worker.processes",
        (
            "                self._past = _sum([self._past, ended])\n                child.report = None\n",
            "                self._past = _sum([self._past, ended])\n",
        ),
    ),
    "a parent ends before its children": _fault(
        "worker.processes",
        (
            "        live = [child for child in self._children if child.process is not None]\n",
            "        live: list[_Child] = []\n",
        ),
        (
            "                finally:\n                    for child in self._children:\n                        child.kill()\n",
            "                finally:\n                    pass\n",
        ),
    ),
    "a child has both ends of the pipe of its parent": _fault(
        "worker.processes",
        ("                pass_fds=(orders,),\n", "                pass_fds=(orders, self._orders),\n"),
    ),
    "a child looks for its parent only at signals": _fault(
        "worker.worker",
        (
            "    if role.told_to_stop:\n        engine.stop(WorkerExit.OK",
            "    if False:\n        engine.stop(WorkerExit.OK",
        ),
    ),
    "a killed child counts as no attempt": _fault(
        "worker.processes",
        (
            "                state = NoteState.CRASHED if running == 1 else NoteState.SUSPECT\n",
            "                state = NoteState.SUSPECT\n",
        ),
    ),
    "each message of a killed child counts as its killer": _fault(
        "worker.processes",
        (
            "                state = NoteState.CRASHED if running == 1 else NoteState.SUSPECT\n",
            "                state = NoteState.CRASHED\n",
        ),
    ),
    "the notes of a killed child are lost": _fault(
        "worker.processes", ("        return code, collect(self._folder, self._number)\n", "        return code, 0\n")
    ),
    "a suspect runs beside others": _fault(
        "worker.processes",
        (
            "        self._alone = record is not None or CRASHED in message.headers\n",
            "        self._alone = False\n",
        ),
    ),
    "a message that waits to run alone lets others begin": _fault(
        "worker.processes",
        (
            "            while not self._lock.wait_for(lambda: not (self._running if alone else self._alone), _TURN):\n",
            "            while not self._lock.wait_for(lambda: not (self._running and alone), _TURN):\n",
        ),
    ),
    "a record is lost with the session of the child that took it": _fault(
        "worker.processes",
        ("            if self._message.settled is None or self._message.session_ended:\n", "            if False:\n"),
    ),
    "nobody waits until a parent has looked at its dead child": _fault(
        "worker.processes",
        (
            "            if record is not None or not (noted or mark in self.held) or deadline.expired:\n",
            "            if True:\n",
        ),
    ),
    "a stop is not handed to the children": _fault("worker.processes", ("            child.order_to_stop()\n", "")),
    "children are not given time to stop": _fault(
        "worker.processes",
        ("            if deadline.expired or len(self._signals.received) >= 2:\n", "            if True:\n"),
    ),
    "a child obeys signals of others": _fault(
        "worker.worker",
        (
            "            told_to_stop=None if role is None else lambda: role.told_to_stop,\n",
            "            told_to_stop=None,\n",
        ),
    ),
    "the second signal ends nothing at once": _fault(
        "worker.processes",
        (" or len(self._signals.received) >= 2:\n                break\n", ":\n                break\n"),
    ),
    "messages of a child that ended in order have crashed it": _fault(
        "worker.engine", ("            self.crashes.close()\n", "            pass\n")
    ),
    "a task with a key runs in each child": _fault(
        "worker.worker", ("if task.key is None or role.number == 1]", "if task.key is None or role.number > 0]")
    ),
    "an outbox deletes before the receipt": _fault(
        "outbox.delivery",
        (
            'while self._sent and _outcome_of(self._sent[0][1]) == "confirmed":',
            "while self._sent:",
        ),
    ),
    "put returns before the message is on disk": _fault(
        "outbox.writer",
        (
            "        return task.result()\n",
            '        return task.value if ".put." in job.__qualname__ else task.result()  # type: ignore[return-value]\n',
        ),
    ),
    "an outbox does not send again what a lost session had": _fault(
        "outbox.forwarder",
        (
            "            self._after = min([self._after, *(number - 1 for number in delivery.unsettled)])",
            "            pass",
        ),
    ),
    "each copy of an outbox has an id of its own": _fault(
        "outbox.delivery",
        (
            'options.pop("dedupe_id", None) or row.id)',
            'options.pop("dedupe_id", None) or f"{row.id}{id(self)}")',
        ),
    ),
    "an outbox sends the newest first": _fault(
        "outbox.delivery", ("            for row in rows:\n", "            for row in reversed(rows):\n")
    ),
    "a message that was not settled stays where it is": _fault(
        "worker.failure",
        ("    delivery_of(message).link.fail(ConnectionLostError(reason))", "    del message, reason"),
    ),
    "a session of the drop-in begins beside the callbacks of the last": _fault(
        "compat.transport", ("                before.done.wait(_HANDOVER)\n", "                pass\n")
    ),
    "a callback that raised is the last that is called": _fault(
        "compat.transport",
        (
            '                    log.error("%s of a listener raised", name, exc_info=True)',
            '                    log.error("%s of a listener raised", name, exc_info=True)\n                    return',
        ),
    ),
    "on_disconnected is called twice": _fault(
        "compat.transport",
        ('events = ["disconnected", "receiver_loop_completed"]', 'events = ["disconnected", "disconnected"]'),
    ),
    "the end of a session confirms receipts of the drop-in": _fault(
        "compat.listener",
        (
            "            self._failed, self._failure = True, failure\n",
            "            self._failed, self._failure = True, failure\n            self.received = True\n",
        ),
    ),
    "the end of a session wakes no thread that waits for a receipt": _fault(
        "compat.listener",
        (
            "            self._failed, self._failure = True, failure\n            self.receipt_condition.notify_all()\n",
            "            self._failed, self._failure = True, failure\n",
        ),
    ),
    "a session of the drop-in that changed wakes nobody": _fault(
        "compat.transport",
        (
            "self.running = connected or session.link.alive\n                self._changed.notify_all()",
            "self.running = connected or session.link.alive",
        ),
    ),
    "a connection that ended before the receipt has sent nothing": _fault(
        "compat.listener",
        (
            'self._fail(ConnectionClosedException(f"the connection ended',
            "from stompy.compat.exception import NotConnectedException\n"
            '        self._fail(NotConnectedException(f"the connection ended',
        ),
    ),
    "a fragment of WebSocket is left out": _fault(
        "transport.websocket.frames",
        (
            "        stop = start + MAX_FRAME\n",
            "        stop = start + MAX_FRAME\n        if start == MAX_FRAME and stop < len(view):\n            continue\n",
        ),
    ),
    "the second piece of a masked frame is unmasked from the beginning of the mask": _fault(
        "transport.websocket.frames", ("masked(part, self._key, self._at)", "masked(part, self._key)")
    ),
    "a header of WebSocket that arrived in part is dropped": _fault(
        "transport.websocket.frames", ("                self._kept = data[at:]\n", '                self._kept = b""\n')
    ),
    "the rest of a message of WebSocket that was written in part is dropped": _fault(
        "transport.websocket.transport",
        (
            'self._unsent, error.outcome = memoryview(b"".join((part, *rest))), "unknown"',
            'self._unsent, error.outcome = b"", "unknown"',
        ),
    ),
    "frames of a broker share a message of WebSocket": _fault(
        "broker.write_queue",
        (
            "        if self._messages is None or not self._messages.keeps_messages:\n            return",
            "        if True:\n            return",
        ),
    ),
    "a Close frame takes the messages that arrived with it": _fault(
        "transport.websocket.transport",
        ('        return b"".join([', '        return b"" if decoder.closed else b"".join(['),
    ),
    "a refused frame of the drop-in counts as confirmed": _fault(
        "compat.listener",
        (
            '            self._fail(StompException(f"the broker refused',
            '            self.received = True\n            self._fail(StompException(f"the broker refused',
        ),
    ),
    "a spool is acknowledged before its segment is written": _fault(
        "spark.receivers",
        (
            "        delivery = self._writer.store(self._number, rows)\n",
            "        for _, some in taken:\n            some[-1].ack()\n"
            "        delivery = self._writer.store(self._number, rows)\n",
        ),
    ),
    "the writer of a spool looks for no newer claim and no lock": _fault(
        "spark.spool.claims",
        ("    lock = files.lock(role.lock)\n    if lock", "    return None\n    if lock"),
        ("        if not found or found[-1] != self._name:\n", "        if False:\n"),
    ),
    "a spool removes what no query has processed": _fault(
        "spark.spool.writer", ("self._index.remove_below(low))", "self._index.remove_below(planned))")
    ),
    "the mark of what was processed is ahead": _fault(
        "spark.source.engine",
        (
            "        for key, until in ends.items():\n            opened[key].view.note_planned(until.next)\n",
            "        for key, until in ends.items():\n            opened[key].view.note_planned(until.next)\n"
            "            opened[key].view.note_processed(until.next)\n",
        ),
    ),
    "a segment has its name before it is complete": _fault(
        "spark.spool.files",
        (
            "        with self._at(name) as path, _unfinished(path, data) as unfinished:\n            if look",
            "        with self._at(name) as path, _unfinished(path, data[: len(data) // 2]) as unfinished:\n"
            "            os.replace(unfinished, path)\n"
            "        with self._at(name) as path, _unfinished(path, data) as unfinished:\n            if look",
        ),
    ),
    "a spool does not know what its predecessor had stored": _fault(
        "spark.spool.writer",
        (
            "        self._suspects.save(self._identities(self._unsettled, identifier, fail_on_loss))\n",
            "        del identifier\n",
        ),
    ),
    "a lost session of a receiver leaves no suspects": _fault(
        "spark.spool.redelivery",
        (
            "        ids = [one for delivery in ours for one in delivery.ids if one in self.known]\n",
            "        ids = [one for delivery in ours for one in delivery.ids if one in self.known]\n"
            "        self.known.difference_update(ids)\n",
        ),
    ),
    "a message that comes again is not looked up in the other spools": _fault(
        "spark.spool.writer",
        ("if one.identity and (self.fresh or one.redelivered)}", "if one.identity and False}"),
    ),
    "a complete segment of another spool is not taken its name": _fault(
        "spark.spool.peers", ("            self._remove_unfinished(asked)\n", "            pass\n")
    ),
    "an id of a spool is forgotten at its receipt": _fault(
        "spark.spool.redelivery",
        ("        return all(receipts >= turn for", "        return True or all(receipts >= turn for"),
    ),
    "a file of a spool has its name before it is synced": _fault(
        "spark.spool.files",
        (
            "            _write_all(handle, data)\n            os.fsync(handle)\n",
            "            _write_all(handle, data)\n",
        ),
    ),
    "the name of a file of a spool is not synced": _fault(
        "spark.spool.files",
        ("        _forget(unfinished)\n    _sync_folder(folder)\n", "        _forget(unfinished)\n"),
    ),
    "a write of a spool that failed is taken as done": _fault(
        "spark.spool.files",
        (
            "            _write_all(handle, data)\n            os.fsync(handle)\n",
            "            with contextlib.suppress(OSError):\n"
            "                _write_all(handle, data)\n                os.fsync(handle)\n",
        ),
    ),
    "an outbox does not sync its commits": _fault(
        "outbox.schema", ('    "synchronous": ("FULL", 2),\n', '    "synchronous": ("NORMAL", 1),\n')
    ),
    "a commit of an outbox that failed is taken as done": _fault(
        "outbox.writer",
        (
            '            self._db.execute("COMMIT")\n',
            '            with contextlib.suppress(sqlite3.Error):\n                self._db.execute("COMMIT")\n',
        ),
    ),
    "an outbox has its name before its lock file is on the disk": _fault(
        "outbox.schema",
        ("    _sync(os.path.dirname(path))\n    os.rename(new, path)\n", "    os.rename(new, path)\n"),
    ),
    "the first mark of an outbox is not synced again": _fault(
        "outbox.schema", ("        if marked is None or not marked[1]:  #", "        if marked is None:  #")
    ),
    "planning a batch processes it": _fault(
        "spark.spool.view",
        (
            "        if end > self.planned:\n            write_mark(self._files, PLANNED, end)\n",
            "        if end > self.planned:\n            write_mark(self._files, LOW, end)\n",
        ),
    ),
}


class _Planting(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module with a fault."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the module's own spec, with this loader."""
        if name != self._fault.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec is not None
        self._file = spec.origin
        return importlib.util.spec_from_loader(name, self, origin=spec.origin)

    def exec_module(self, module: ModuleType) -> None:
        """Run the changed source."""
        assert self._file is not None
        module.__file__ = self._file
        exec(compile(changed(self._fault, self._file), self._file, "exec"), vars(module))


def changed(fault: Fault, file: str) -> str:
    """Return the source of a file with a fault."""
    with open(file, encoding="utf-8") as opened:
        source = opened.read()
    for old, new in fault.changes:
        assert source.count(old) == 1, f"{file} has {source.count(old)} times {old!r}"
        source = source.replace(old, new)
    return source


def may_show(**folders: object) -> bool:
    """Return whether a world can show the fault that is planted: one with something of its folder and its module."""
    name = os.environ.get(PLANTED)
    parts = FAULTS[name].module.split(".")[1:] if name else []
    return all(folders.get(part, True) for part in parts)


def plant() -> None:
    """Plant the fault that the environment names, if it names one."""
    name = os.environ.get(PLANTED)
    if name:
        assert FAULTS[name].module not in sys.modules, "it has been imported already"
        sys.meta_path.insert(0, _Planting(FAULTS[name]))
