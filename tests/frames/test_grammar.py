from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from stompy.errors import ConfigurationError
from stompy.frames.grammar import (
    BODY_COMMANDS,
    CLIENT_COMMANDS,
    DEFAULT_LIMITS,
    NEGOTIABLE,
    RAW_COMMANDS,
    SERVER_COMMANDS,
    FrameLimits,
    Leniency,
    Version,
    body_limit,
    grammar_of,
    handshake_grammar,
    parse_version,
)


def test_a_version_is_written_as_in_the_version_header() -> None:
    assert [str(version) for version in Version] == ["1.0-draft", "1.0", "1.1", "1.2"]


def test_versions_are_ordered_by_age() -> None:
    assert sorted({Version.V1_2, Version.V1_0, Version.DRAFT, Version.V1_1}) == list(Version)
    assert max(NEGOTIABLE) is Version.V1_2
    assert not Version.V1_1 < Version.V1_1


@pytest.mark.requirement("A-29")
def test_the_draft_is_never_negotiated() -> None:
    assert NEGOTIABLE == (Version.V1_0, Version.V1_1, Version.V1_2)


@pytest.mark.requirement("HBT-13")
def test_1_1_and_newer_have_heartbeats() -> None:
    assert [version for version in Version if version.has_heartbeats] == [Version.V1_1, Version.V1_2]


def test_a_version_is_found_by_its_name() -> None:
    for version in Version:
        assert parse_version(version.value) is version
        assert parse_version(version) is version
    with pytest.raises(ConfigurationError, match=r"'2\.0': stompy supports 1\.0-draft, 1\.0, 1\.1, 1\.2"):
        parse_version("2.0")


FACETS = ("escapes", "crlf", "bare_cr", "trim", "unexpected_body", "draft")


@pytest.mark.requirement("ESC-01", "ESC-02", "ESC-03", "ESC-10", "FRM-03", "FRM-04", "FRM-10", "FRM-11", "BDY-01")
@pytest.mark.parametrize(
    ("version", "escapes", "crlf", "bare_cr", "trim", "body", "draft"),
    [
        (Version.DRAFT, "", True, True, True, "drop", True),
        (Version.V1_0, "", True, True, True, "drop", False),
        (Version.V1_1, "\\\n:", False, True, False, "refuse", False),
        (Version.V1_2, "\\\n\r:", True, False, False, "refuse", False),
    ],
)
def test_each_version_has_its_rules(
    version: Version, escapes: str, crlf: bool, bare_cr: bool, trim: bool, body: str, draft: bool
) -> None:
    grammar = grammar_of(version)
    facets = ("".join(grammar.escapes), grammar.crlf, grammar.bare_cr, grammar.trim, grammar.unexpected_body)
    assert (*facets, grammar.draft) == (escapes, crlf, bare_cr, trim, body, draft)
    assert grammar.version is version
    assert grammar.unescapes == {sequence: char for char, sequence in grammar.escapes.items()}
    assert (grammar.lenient_escapes, grammar.escape_raw_commands, grammar.handshake) == (False, False, False)
    assert grammar.utf8_errors == "strict"


@pytest.mark.requirement("A-14")
def test_the_handshake_is_read_by_rules_that_fit_every_version() -> None:
    grammar = handshake_grammar()
    assert grammar.handshake
    assert (grammar.crlf, grammar.bare_cr, grammar.trim, grammar.unexpected_body) == (True, True, False, "keep")
    assert grammar.lenient_escapes
    assert not grammar.escaped("CONNECT")
    assert grammar.escaped("ERROR")


@pytest.mark.requirement("ESC-07", "A-08")
def test_connect_stomp_and_connected_are_raw_unless_the_peer_escapes_them() -> None:
    assert frozenset({"CONNECT", "STOMP", "CONNECTED"}) == RAW_COMMANDS
    for version in (Version.V1_1, Version.V1_2):
        for command in CLIENT_COMMANDS | SERVER_COMMANDS:
            assert grammar_of(version).escaped(command) == (command not in RAW_COMMANDS)
            assert grammar_of(version, Leniency.ESCAPED_CONNECT).escaped(command)
    assert handshake_grammar(Leniency.ESCAPED_CONNECT).escaped("CONNECT")
    assert not grammar_of(Version.V1_0, Leniency.ESCAPED_CONNECT).escaped("CONNECT")


@pytest.mark.parametrize(
    ("leniency", "changes"),
    [
        (Leniency.UNDEFINED_ESCAPES, dict.fromkeys(Version, "lenient_escapes")),
        (Leniency.CR_ESCAPE_IN_1_1, {Version.V1_1: "unescapes"}),
        (Leniency.WRITE_CR_ESCAPE_IN_1_1, {Version.V1_1: "escapes unescapes"}),
        (Leniency.ESCAPES_IN_1_0, {Version.V1_0: "escapes unescapes"}),
        (Leniency.CRLF_IN_1_1, {Version.V1_1: "crlf"}),
        (Leniency.INVALID_UTF8, dict.fromkeys(Version, "utf8_errors")),
        (Leniency.UNEXPECTED_BODY, {Version.V1_1: "unexpected_body", Version.V1_2: "unexpected_body"}),
        (Leniency.ESCAPED_CONNECT, dict.fromkeys(Version, "escape_raw_commands")),
        (Leniency.NUL_BETWEEN_FRAMES, dict.fromkeys(set(Version) - {Version.DRAFT}, "nul_between")),
    ],
)
def test_a_leniency_changes_one_rule_and_no_other(leniency: Leniency, changes: dict[Version, str]) -> None:
    for version in Version:
        strict, lenient = (dataclasses.asdict(grammar_of(version, by)) for by in (Leniency.NONE, leniency))
        assert {name for name in strict if strict[name] != lenient[name]} == set(changes.get(version, "").split())


@pytest.mark.requirement("BDY-01", "BNF-10", "BNF-11", "BNF-12")
def test_the_commands_are_those_of_the_specification() -> None:
    assert frozenset({"SEND", "MESSAGE", "ERROR"}) == BODY_COMMANDS
    client = "CONNECT STOMP SEND SUBSCRIBE UNSUBSCRIBE ACK NACK BEGIN COMMIT ABORT DISCONNECT"
    assert frozenset(client.split()) == CLIENT_COMMANDS
    assert frozenset({"CONNECTED", "MESSAGE", "RECEIPT", "ERROR"}) == SERVER_COMMANDS


def test_a_grammar_is_made_once() -> None:
    assert grammar_of(Version.V1_2) is grammar_of(Version.V1_2)
    assert handshake_grammar() is handshake_grammar()


@pytest.mark.requirement("LIM-01")
def test_there_is_a_limit_for_headers_lines_and_bodies() -> None:
    assert FrameLimits() == DEFAULT_LIMITS
    assert (DEFAULT_LIMITS.max_headers, DEFAULT_LIMITS.max_header_line) == (1_000, 65_536)
    assert (DEFAULT_LIMITS.max_header_block, DEFAULT_LIMITS.max_first_body) == (1024 * 1024, 65_536)
    assert DEFAULT_LIMITS.max_body == 128 * 1024 * 1024
    assert FrameLimits(max_headers=0, max_header_line=0, max_body=0).max_body == 0


@pytest.mark.parametrize("name", ["max_headers", "max_header_line", "max_header_block", "max_body", "max_first_body"])
@pytest.mark.parametrize("value", [-1, 1.5, "1", None, True])
def test_a_limit_is_a_whole_number(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} must be a whole number"):
        FrameLimits(**{name: value})


def test_the_body_of_a_first_frame_has_the_smaller_of_two_limits() -> None:
    assert body_limit(FrameLimits(max_first_body=5, max_body=9), first=True) == ("max_first_body", 5)
    assert body_limit(FrameLimits(max_first_body=5, max_body=9), first=False) == ("max_body", 9)
    assert body_limit(FrameLimits(max_first_body=5, max_body=3), first=True) == ("max_body", 3)
