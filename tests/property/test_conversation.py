"""Client and broker side talk over two byte queues, cut anywhere, and a small model says what must come of it."""

from __future__ import annotations

from dataclasses import dataclass, field

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from stompy.errors import LocalProtocolError, NotConnectedError
from stompy.frames.frame import Frame
from stompy.frames.grammar import Version
from stompy.protocol.ack import Entry, Ledger, ack_headers
from stompy.protocol.client import ClientProtocol
from stompy.protocol.server import ServerProtocol
from stompy.protocol.state import State

NAMES = st.sampled_from(["1", "2", "a:b", "c\\n", "é"])
DESTINATIONS = st.sampled_from(["/queue/a", "/topic/b c", "x:y\\z"])
MODES = st.sampled_from(["auto", "client", "client-individual"])
BODIES = st.binary(max_size=12) | st.sampled_from([b"\0", b"\n", b"\0\nSEND\n\n\0"])


@dataclass
class Model:
    """What both sides must agree on."""

    subscriptions: dict[str, str] = field(default_factory=dict)
    transactions: dict[str, list[list[str]]] = field(default_factory=dict)
    unacked: dict[str, list[str]] = field(default_factory=dict)
    """Subscription to the tokens that wait, in order; the list outlives the subscription."""

    def waiting(self) -> set[str]:
        return {token for tokens in self.unacked.values() for token in tokens}


class Conversation(RuleBasedStateMachine):
    """The rules speak as client or broker; `carry_*` move bytes; the invariants compare with the model."""

    version: Version

    def __init__(self) -> None:
        super().__init__()
        self.client = ClientProtocol(versions=(self.version,))
        self.server = ServerProtocol(versions=(self.version,))
        self.upward = bytearray()
        self.downward = bytearray()
        self.said: list[Frame] = []
        self.heard: list[Frame] = []
        self.answered: list[Frame] = []
        self.got: list[Frame] = []
        self.model = Model()
        self.ledger: Ledger[str] = Ledger()
        self.messages: dict[str, dict[str, str]] = {}
        self.aborted: dict[str, list[Entry[str]]] = {}
        self.deliveries = 0
        self.incarnations = 0
        self.names: dict[str, str] = {}

    # ------------------------------------------------------------------------------------------------- the wire

    @initialize()
    def do_handshake(self) -> None:
        self.upward += self.client.connect(host="h", login="u", passcode="p")
        self._carry(up=True, size=len(self.upward))
        assert [frame.command for frame in self.heard] == ["CONNECT"]
        self.heard.clear()
        self.downward += self.server.connected("s-1")

    def _carry(self, *, up: bool, size: int) -> None:
        queue, into, side = (self.upward, self.heard, self.server) if up else (self.downward, self.got, self.client)
        into += side.receive(bytes(queue[:size]))
        del queue[:size]
        assert side.error is None

    @rule(size=st.integers(1, 40))
    def carry_up(self, size: int) -> None:
        self._carry(up=True, size=size)

    @rule(size=st.integers(1, 40))
    def carry_down(self, size: int) -> None:
        self._carry(up=False, size=size)

    @rule()
    def beat(self) -> None:
        self.upward += b"\n"
        self.downward += b"\n"

    # ----------------------------------------------------------------------------------------------- the client

    def _open(self) -> bool:
        return self.client.state is State.CONNECTED

    def _say(self, command: str, headers: dict[str, str], body: bytes = b"") -> None:
        """Say what is allowed in an open session, and nothing in any other."""
        if self._open():
            self.upward += self.client.send(command, headers, body)
            self.said.append(Frame(command, headers, body))
            return
        with pytest.raises(NotConnectedError):
            self.client.send(command, headers, body)

    def _refused(self, command: str, headers: dict[str, str]) -> None:
        with pytest.raises(LocalProtocolError if self._open() else NotConnectedError):
            self.client.send(command, headers)

    @rule(name=NAMES, destination=DESTINATIONS, mode=MODES)
    def subscribe(self, name: str, destination: str, mode: str) -> None:
        headers = {"id": name, "destination": destination, "ack": mode}
        if not self._open() or name not in self.model.subscriptions:
            self._say("SUBSCRIBE", headers)
            if self._open():
                self.model.subscriptions[name] = mode
                self.incarnations += 1
                self.names[name] = f"{name}/{self.incarnations}"
        else:
            self._refused("SUBSCRIBE", headers)

    @rule(name=NAMES)
    def unsubscribe(self, name: str) -> None:
        if self._open() and name in self.model.subscriptions:
            self._say("UNSUBSCRIBE", {"id": name})
            del self.model.subscriptions[name]

    @rule(name=NAMES)
    def begin(self, name: str) -> None:
        if self._open() and name in self.model.transactions:
            self._refused("BEGIN", {"transaction": name})
            return
        self._say("BEGIN", {"transaction": name})
        if self._open():
            self.model.transactions[name] = []

    @rule(name=NAMES, ending=st.sampled_from(["COMMIT", "ABORT"]))
    def finish(self, name: str, ending: str) -> None:
        if self._open() and name not in self.model.transactions:
            self._refused(ending, {"transaction": name})
            return
        self._say(ending, {"transaction": name})
        if self._open():
            taken = self.model.transactions.pop(name)
            if ending == "ABORT":
                self._put_back(taken)

    def _put_back(self, taken: list[list[str]]) -> None:
        for group in taken:
            for token in group:
                waiting = self.model.unacked[self.messages[token]["incarnation"]]
                waiting.append(token)
                waiting.sort(key=lambda one: int(self.messages[one]["message-id"]))

    @rule(destination=DESTINATIONS, body=BODIES, transaction=st.none() | NAMES)
    def send(self, destination: str, body: bytes, transaction: str | None) -> None:
        headers = {"destination": destination, "x:h" if self.version is not Version.V1_0 else "x-h": "v"}
        if self.version is Version.DRAFT:
            headers = {"destination": destination}
        if transaction is not None:
            headers["transaction"] = transaction
            if self._open() and transaction not in self.model.transactions:
                self._refused("SEND", headers)
                return
        self._say("SEND", headers, body)

    @precondition(lambda self: self._open() and self.model.waiting())
    @rule(data=st.data(), command=st.sampled_from(["ACK", "NACK"]), inside=st.booleans())
    def acknowledge(self, data: st.DataObject, command: str, inside: bool) -> None:
        # Only what has come down can be named.
        arrived = [frame.headers["message-id"] for frame in self.got if frame.command == "MESSAGE"]
        known = [token for token in sorted(self.model.waiting()) if self.messages[token]["message-id"] in arrived]
        if not known:
            return
        token = data.draw(st.sampled_from(known))
        message = self.messages[token]
        if command == "NACK" and self.version not in (Version.V1_1, Version.V1_2):
            with pytest.raises(LocalProtocolError):
                ack_headers(command, message.get, self.version)
            self._refused(command, {"message-id": message["message-id"]})
            return
        headers = ack_headers(command, message.get, self.version)
        transaction = next(iter(sorted(self.model.transactions)), None) if inside else None
        if transaction is not None:
            headers["transaction"] = transaction
        self._say(command, headers)
        waiting = self.model.unacked[message["incarnation"]]
        end = waiting.index(token) + 1
        taken = waiting[:end] if message["mode"] == "client" else [token]
        for one in taken:
            waiting.remove(one)
        if transaction is not None:
            self.model.transactions[transaction].append(taken)

    @rule(receipt=st.none() | NAMES)
    def disconnect(self, receipt: str | None) -> None:
        # Rarely, so that most conversations go on.
        if receipt == "é" and self._open():
            self._say("DISCONNECT", {"receipt": receipt})

    @rule(command=st.sampled_from(["FOO", "MESSAGE", "CONNECT", "send"]))
    def say_what_no_client_says(self, command: str) -> None:
        with pytest.raises((LocalProtocolError, NotConnectedError)):
            self.client.send(command, {"destination": "/q"})

    # ----------------------------------------------------------------------------------------------- the broker

    @rule(data=st.data(), body=BODIES)
    def deliver(self, data: st.DataObject, body: bytes) -> None:
        self._settle()
        if not self.model.subscriptions or self.server.state is not State.CONNECTED:
            return
        name = data.draw(st.sampled_from(sorted(self.model.subscriptions)))
        mode, incarnation = self.model.subscriptions[name], self.names[name]
        self.deliveries += 1
        identity = str(self.deliveries)
        token = f"a{identity}" if self.version is Version.V1_2 else identity
        headers = {"destination": "/d", "message-id": identity, "subscription": name}
        if mode != "auto":
            headers["ack"] = f"a{identity}"
            self.ledger.add(token, incarnation, identity)
            self.model.unacked.setdefault(incarnation, []).append(token)
        self.messages[token] = {**headers, "mode": mode, "incarnation": incarnation}
        self.downward += self.server.send("MESSAGE", headers, body)
        self.answered.append(Frame("MESSAGE", headers, body))

    def _settle(self) -> None:
        """Let the broker hear all that was said, and do it."""
        while self.upward:
            self._carry(up=True, size=len(self.upward))
        self._work()

    def _work(self) -> None:
        for frame in self.heard:
            expected = self.said.pop(0)
            assert (frame.command, frame.body) == (expected.command, expected.body)
            assert {name: frame.headers[name] for name in expected.headers} == dict(expected.headers)
            transaction = frame.headers.get("transaction")
            if frame.command in ("ACK", "NACK"):
                token = frame.headers["id" if self.version is Version.V1_2 else "message-id"]
                mode = self.messages[token]["mode"]
                taken = self.ledger.take(token, cumulative=mode == "client")
                assert taken[-1].token == token
                if transaction is not None:
                    self.aborted.setdefault(transaction, []).extend(taken)
            elif frame.command == "COMMIT":
                self.aborted.pop(str(transaction), None)
            elif frame.command == "ABORT":
                self.ledger.restore(self.aborted.pop(str(transaction), []))
            if "receipt" in frame.headers:
                headers = {"receipt-id": frame.headers["receipt"]}
                self.downward += self.server.send("RECEIPT", headers)
                self.answered.append(Frame("RECEIPT", headers))
        self.heard.clear()

    # --------------------------------------------------------------------------------------------- what must hold

    @rule()
    def both_books_agree_when_all_was_heard(self) -> None:
        self._settle()
        assert self.server.subscriptions == {f"#{name}": mode for name, mode in self.model.subscriptions.items()}
        assert self.server.transactions == set(self.model.transactions)
        assert len(self.ledger) == len(self.model.waiting())
        for incarnation, tokens in self.model.unacked.items():
            assert self.ledger.count(incarnation) == len(tokens)

    @invariant()
    def the_client_got_a_prefix_of_what_was_answered(self) -> None:
        got = [frame for frame in self.got if frame.command != "CONNECTED"]
        for frame, expected in zip(got, self.answered, strict=False):
            assert (frame.command, frame.body) == (expected.command, expected.body)
            assert {name: frame.headers[name] for name in expected.headers} == dict(expected.headers)
        assert len(got) <= len(self.answered)

    def teardown(self) -> None:
        if self.client.state is State.NEW:
            return
        self.both_books_agree_when_all_was_heard()
        while self.downward:
            self._carry(up=False, size=len(self.downward))
        assert len(self.got) == len(self.answered) + 1
        left = {entry.token for entry in self.ledger.take_all()}
        assert left == self.model.waiting()


@pytest.mark.requirement(
    "CON-24",
    "FRM-12",
    "SUB-06",
    "SUB-14",
    "TXN-01",
    "TXN-03",
    "TXN-04",
    "TXN-08",
    "ACK-05",
    "ACK-07",
    "ACK-16",
    "HBT-14",
)
@pytest.mark.parametrize("version", list(Version), ids=str)
def test_client_and_broker_understand_each_other_however_the_stream_is_cut(version: Version) -> None:
    machine = type("Machine", (Conversation,), {"version": version})
    run_state_machine_as_test(machine, settings=settings(max_examples=60, stateful_step_count=40))
