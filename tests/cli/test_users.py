from __future__ import annotations

from pathlib import Path

import pytest

from stompy.broker.users import User, fits, hash_passcode, is_allowed
from stompy.cli.broker import users_of
from stompy.cli.exits import Failure
from stompy.secret import Secret
from tests.cli.conftest import Run

HASH = hash_passcode("sesame")


def test_the_hash_of_a_passcode_is_printed_and_nothing_of_the_passcode(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "passcode"
    file.write_text("sesame\n", encoding="utf-8")
    result = run("hash-passcode", "--passcode-file", str(file))
    assert (result.code, result.err) == (0, "")
    assert fits(Secret("sesame"), result.out.decode().strip())
    assert b"sesame" not in result.out


def test_without_a_passcode_there_is_nothing_to_hash(run: Run) -> None:
    result = run("hash-passcode")
    assert result.code == 2
    assert "STOMPY_PASSCODE" in result.error


def test_a_file_of_users_says_who_may_do_what(tmp_path: Path) -> None:
    file = tmp_path / "users.json"
    file.write_text(f'{{"ann": {{"passcode_hash": "{HASH}"}}, "bob": {{"passcode_hash": "{HASH}", "read": []}}}}')
    users = users_of(file)
    ann, bob = users["ann"], users["bob"]
    assert isinstance(ann, User)
    assert isinstance(bob, User)
    assert (is_allowed(ann, "read", "/queue/a"), is_allowed(bob, "read", "/queue/a")) == (True, False)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read"),
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("\xff", "object"),
        ("[]", "one JSON object"),
        ("{}", "one JSON object"),
        ('{"ann": "sesame"}', "user 'ann'"),
        ('{"ann": {"passcode": "sesame"}}', "passcode_hash"),
        ('{"ann": {"passcode_hash": 5}}', "passcode_hash"),
        ('{"ann": {"passcode_hash": "sesame"}}', "passcode hash has the form"),
        ('{"ann": {"passcode_hash": "HASH", "read": "/queue/a"}}', "list of destinations"),
    ],
)
def test_a_file_that_is_none_is_told_without_a_passcode(content: str | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / "users.json"
    if content is not None:
        file.write_text(content.replace("\xff", '"x"').replace("HASH", HASH), encoding="utf-8")
    with pytest.raises(Failure, match=message) as caught:
        users_of(file)
    assert "sesame" not in str(caught.value)
