from __future__ import annotations

import errno
import os
import socket

import pytest

from stompy.transport.faults import in_words, lookup_in_words


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ECONNREFUSED, "connection refused"),
        (errno.ECONNRESET, "connection reset by the peer"),
        (errno.EHOSTUNREACH, "no route to the host"),
        (errno.EADDRINUSE, "the address is already in use"),
    ],
)
def test_common_faults_are_in_plain_words(code: int, words: str) -> None:
    assert in_words(OSError(code, os.strerror(code))) == words


def test_other_faults_keep_the_systems_words() -> None:
    assert in_words(OSError(errno.ENOTDIR, "Not a directory")) == "Not a directory"
    assert in_words(OSError("odd")) == "odd"
    assert in_words(TimeoutError()) == "TimeoutError"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (socket.EAI_NONAME, "host name not found: h.example"),
        (socket.EAI_AGAIN, "the name service gave no answer for h.example; it may later"),
        (socket.EAI_FAIL, "host name lookup failed for h.example: broken"),
    ],
)
def test_lookup_faults_name_the_host(code: int, words: str) -> None:
    assert lookup_in_words(socket.gaierror(code, "broken"), host="h.example") == words


def test_lookup_faults_that_are_not_the_name_services_keep_their_words() -> None:
    assert lookup_in_words(OSError(errno.EMFILE, "x"), host="h") == (
        "host name lookup failed for h: too many open files in this process"
    )
