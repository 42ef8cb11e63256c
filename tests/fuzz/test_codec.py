from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import target

TOP = Path(__file__).parents[2]


def test_a_seed_for_every_case_is_written(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "tests.fuzz.target", str(tmp_path)], cwd=TOP, check=True)
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert written == dict(target.seeds())
    assert len(written) > 400


@pytest.mark.parametrize("size", [0, 1, 7])
def test_what_the_fuzzer_asserts_holds_for_every_seed(size: int) -> None:
    for _, stream in target.seeds():
        target.check(stream[:2] + bytes((size,)) + stream[target.PREFIX :])


def test_an_input_without_a_stream_says_nothing() -> None:
    for stream in (b"", b"\0", b"\0\0", b"\0\0\0"):
        target.check(stream)


def test_the_target_notices_a_parser_that_disagrees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "feed_all", lambda *_: ([], None))
    with pytest.raises(AssertionError):
        target.check(b"\3\0\0SEND\n\n\0")
    with pytest.raises(AssertionError):
        target.check(b"\3\0\0!\n")


def test_the_target_notices_a_frame_that_is_not_written_as_it_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "encode", lambda *_, **__: b"SEND\n\n\0")
    with pytest.raises(AssertionError):
        target.check(b"\3\0\0SEND\nk:v\n\n\0")
