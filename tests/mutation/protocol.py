"""One-rule mutations of `stompy/protocol/`: each breaks one rule, and some test must notice."""

from __future__ import annotations

TESTS = ("tests/protocol", "tests/conformance", "tests/property/test_conversation.py")
"""What is run on each mutant."""

_STATE = "stompy/protocol/state.py"
_RULES = "stompy/protocol/rules.py"
_ACK = "stompy/protocol/ack.py"
_BEAT = "stompy/protocol/heartbeat.py"
_CLIENT = "stompy/protocol/client.py"
_SERVER = "stompy/protocol/server.py"

MUTATIONS: list[tuple[str, str, str, str]] = [
    (
        _STATE,
        "    State.DISCONNECTING: {\n        ProtocolEvent.SERVER_FRAME",
        "    State.DISCONNECTING: {\n        ProtocolEvent.CLIENT_FRAME: State.DISCONNECTING,\n"
        "        ProtocolEvent.SERVER_FRAME",
        "frames after DISCONNECT",
    ),
    (
        _STATE,
        "        ProtocolEvent.CONNECT: State.CONNECTING,\n",
        "        ProtocolEvent.CONNECT: State.CONNECTING,\n        ProtocolEvent.CLIENT_FRAME: State.NEW,\n",
        "frames before CONNECT",
    ),
    (
        _STATE,
        "        ProtocolEvent.CONNECTED: State.CONNECTED,\n",
        "        ProtocolEvent.CONNECTED: State.CONNECTED,\n        ProtocolEvent.SERVER_FRAME: State.CONNECTING,\n",
        "MESSAGE before CONNECTED",
    ),
    (_STATE, '"STOMP": ProtocolEvent.CONNECT', '"STOMP": ProtocolEvent.CLIENT_FRAME', "STOMP is not CONNECT"),
    (_RULES, '    "SEND": ("destination",),\n', "", "SEND without destination"),
    (_RULES, '"SUBSCRIBE": ("destination", "id")', '"SUBSCRIBE": ("destination",)', "SUBSCRIBE without id"),
    (_RULES, '"ACK": ("message-id", "subscription")', '"ACK": ("message-id",)', "1.1 ACK without subscription"),
    (_RULES, '"ACK": ("id",), "NACK": ("id",)', '"ACK": ("id",)', "1.2 NACK by message-id"),
    (
        _RULES,
        '"MESSAGE": ("destination", "message-id", "subscription")',
        '"MESSAGE": ("destination", "message-id")',
        "MESSAGE without subscription",
    ),
    (_RULES, 'CLIENT_COMMANDS - {"STOMP", "NACK"}', 'CLIENT_COMMANDS - {"STOMP"}', "NACK in 1.0"),
    (_RULES, "mode is None or mode in ACK_MODES", "True", "any ack mode"),
    (_RULES, '    frame.body = b""\n', "", "a body of a 1.0 CONNECT is kept"),
    (_RULES, 'if grammar.unexpected_body == "refuse":', "if False:", "a body of CONNECT is accepted"),
    (_STATE, "if key in self.subscriptions:", "if False:", "one subscription id twice"),
    (
        _STATE,
        "if key not in self.subscriptions:",
        "if not key:",
        "UNSUBSCRIBE of an unknown id",
    ),
    (_STATE, "if transaction in self.transactions:", "if False:", "BEGIN twice"),
    (
        _STATE,
        '("SEND", "ACK", "NACK", "COMMIT", "ABORT")',
        '("SEND", "ACK", "COMMIT", "ABORT")',
        "NACK in no transaction",
    ),
    (_STATE, 'elif command in ("COMMIT", "ABORT"):', 'elif command == "COMMIT":', "ABORT leaves the transaction open"),
    (_STATE, "f\"@{header('destination')}\"", "f\"#{header('destination')}\"", "a destination taken for an id"),
    (_ACK, '{"id": _value(message, "ack")}', '{"id": _value(message, "message-id")}', "1.2 ACK by message-id"),
    (_ACK, 'command == "NACK" and not version.has_heartbeats', "False", "NACK written in 1.0"),
    (
        _ACK,
        '{"message-id": _value(message, "message-id"), "subscription": _value(message, "subscription")}',
        '{"message-id": _value(message, "message-id")}',
        "1.1 ACK written without subscription",
    ),
    (_ACK, "waiting.values()) if cumulative else ()", "waiting.values())", "individual acks are cumulative"),
    (_ACK, "waiting.values()) if cumulative else ()", "waiting.values()) if False else ()", "no ack is cumulative"),
    (
        _ACK,
        "waiting = self._by_subscription[named.subscription]",
        "waiting = OrderedDict(self._by_token)",
        "cumulative acks reach over subscriptions",
    ),
    (_ACK, "sorted(waiting.items(), key=lambda pair: pair[1].order)", "waiting.items()", "ABORT loses the order"),
    (
        _ACK,
        "if subscription is not None and subscription != named.subscription:",
        "if False:",
        "a 1.1 ACK may name another subscription",
    ),
    (_BEAT, "return max(can_ms, wants_ms) / 1000", "return min(can_ms, wants_ms) / 1000", "the shorter interval"),
    (_BEAT, "if can_ms and wants_ms else None", "if can_ms or wants_ms else None", "0 means no wish"),
    (
        _BEAT,
        "_interval(mine.send_ms, theirs.receive_ms), _interval(theirs.send_ms, mine.receive_ms)",
        "_interval(mine.send_ms, theirs.send_ms), _interval(theirs.receive_ms, mine.receive_ms)",
        "the wrong pair of numbers",
    ),
    (_BEAT, "SEND_SHARE = 0.6", "SEND_SHARE = 1.0", "a beat at the last moment"),
    (_BEAT, "DEFAULT_TOLERANCE = 3.0", "DEFAULT_TOLERANCE = 2.0", "no patience for a late first beat"),
    (_BEAT, "self.receive * max(tolerance, _MIN_TOLERANCE)", "self.receive * tolerance", "no margin of error"),
    (_BEAT, "if late and heard != self._excused:", "if False:", "a suspended machine kills the link"),
    (_BEAT, "if late and heard != self._excused:", "if late:", "sleep keeps a dead peer alive"),
    (_BEAT, "        self._planned = max(self._planned, now)\n", "", "looks at fixed steps count as sleep"),
    (_RULES, "return max((", "return min((", "the lowest common version"),
    (_RULES, "return (Version.V1_0,)", "return NEGOTIABLE", "no accept-version means anything"),
    (_RULES, 'item.strip(" ")', "item", "spaces in accept-version"),
    (
        _RULES,
        '",".join(version.value for version in sorted(versions))',
        '",".join(version.value for version in versions)',
        "accept-version not in order",
    ),
    (_CLIENT, "        self.parser.switch(grammar)\n", "", "the client stops reading after CONNECTED"),
    (
        _CLIENT,
        "        self.grammar = grammar\n        self.parser.switch(grammar)\n",
        "        self.parser.switch(self.grammar)\n",
        "the client keeps the rules of the handshake",
    ),
    (
        _CLIENT,
        'chosen = "1.0" if value is None else',
        "chosen = self._versions[-1].value if value is None else",
        "no version",
    ),
    (_CLIENT, '("accept-version", "heart-beat", "receipt")', '("accept-version", "heart-beat")', "receipt on CONNECT"),
    (
        _CLIENT,
        "                if self.state is State.FAILED:\n                    break\n                try:",
        "                try:",
        "the client accepts what follows ERROR",
    ),
    (
        _CLIENT,
        "        if command not in rules.commands_of(self._versions[-1], client=False):\n",
        "        if False:\n",
        "the client takes SEND for an answer",
    ),
    (
        _CLIENT,
        "if version is Version.V1_0:\n            frame",
        "if False:\n            frame",
        "a padded 1.0 CONNECTED",
    ),
    (
        _CLIENT,
        "if self._versions[-1].has_heartbeats and (self._offer",
        "if True and (self._offer",
        "a 1.0 client sends heart-beat",
    ),
    (
        _CLIENT,
        'return {"username": login or "", "passcode"',
        'return {"login": login or "", "passcode"',
        "login in the draft",
    ),
    (
        _CLIENT,
        "if self.parser.error is not None and self.state is not State.FAILED:",
        "if False:",
        "the client overlooks an error of the codec",
    ),
    (_SERVER, "        self.parser.switch(self.grammar)\n", "", "the broker stops reading after CONNECT"),
    (
        _SERVER,
        "self.grammar = grammar_of(version, self._leniency)",
        "self.grammar = grammar_of(Version.V1_2, self._leniency)",
        "the broker follows 1.2 in every session",
    ),
    (_SERVER, "if version is Version.V1_0:\n            frame", "if False:\n            frame", "a padded 1.0 CONNECT"),
    (
        _SERVER,
        "            if version.has_heartbeats:\n                self.heartbeats",
        "            if True:\n                self.heartbeats",
        "heartbeats in 1.0",
    ),
    (_SERVER, '            fields["version"] = version.value\n', "", "CONNECTED without version"),
    (
        _SERVER,
        '            fields["version"] = accept_version(self._versions)\n',
        "            pass\n",
        "ERROR without the versions",
    ),
    (_SERVER, '            fields["receipt-id"] = receipt\n', "            pass\n", "ERROR without receipt-id"),
    (
        _SERVER,
        "_UNSAFE if grammar.handshake else _UNSAFE_IN_1_0",
        "_UNSAFE_IN_1_0",
        "colons in an ERROR before CONNECT",
    ),
    (
        _SERVER,
        "_UNSAFE if grammar.handshake else _UNSAFE_IN_1_0",
        "_UNSAFE",
        "no colons in an ERROR of a refused login",
    ),
    (
        _SERVER,
        "        if EVENTS.get(command) is not ProtocolEvent.SERVER_FRAME:\n",
        "        if False:\n",
        "the broker sends client frames",
    ),
    (_SERVER, "and self._lacks_ack(headers)", "and False", "a 1.2 MESSAGE without ack"),
    (
        _SERVER,
        "self._require_host and version.has_heartbeats and",
        "self._require_host and",
        "host asked of a 1.0 client",
    ),
    (
        _SERVER,
        "            if self._has_failed:\n                break\n            if self.admits",
        "            if self.admits",
        "the broker goes on after an error",
    ),
    (
        _SERVER,
        "return self.error is not None or self.state is State.FAILED",
        "return self.error is not None",
        "the broker listens after ERROR",
    ),
    (_SERVER, "self._ids.record(command, header)", "pass", "the broker records nothing"),
]
"""File, old text (found once), new text, name."""
