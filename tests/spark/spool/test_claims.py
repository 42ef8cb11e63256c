from __future__ import annotations

import math
import os
import threading
from pathlib import Path

import pytest

from stompy.errors import SpoolBusyError, SpoolFencedError
from stompy.spark.spool import claims
from stompy.spark.spool.claims import ActiveClaim, Claim, ClaimTimeouts, active_claim
from stompy.spark.spool.files import Files


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(str(tmp_path))


def claim(files: Files, *, wait: float = 0.0, frozen: float = 60.0) -> Claim:
    return Claim(files, patience=ClaimTimeouts(wait=wait, frozen=frozen))


def test_numbers_grow(files: Files) -> None:
    first = claim(files)
    first.begin(0)
    first.release()
    second = claim(files)
    assert (first.epoch, second.epoch) == (1, 2)
    second.release()


def test_a_second_receiver_is_refused_while_the_first_is_alive(files: Files) -> None:
    first = claim(files)
    with pytest.raises(SpoolBusyError, match=rf": another query or receiver fills it \(process {os.getpid()} on "):
        claim(files)
    first.check()
    first.release()


def test_one_that_waits_gets_the_spool_when_it_is_free(files: Files) -> None:
    first = claim(files)
    threading.Timer(0.2, first.release).start()
    second = claim(files, wait=20.0)
    assert second.epoch == 2
    second.release()


def test_a_frozen_owner_is_taken_over_from_and_fenced(files: Files) -> None:
    frozen = claim(files)
    frozen.begin(0)
    successor = claim(files, wait=60.0, frozen=0.2)
    with pytest.raises(SpoolFencedError, match=r"another query or receiver has taken it over \(process"):
        frozen.check()
    successor.begin(5)
    with pytest.raises(SpoolFencedError):
        frozen.check()
    successor.check()
    frozen.release()
    successor.release()


def test_an_owner_that_shows_signs_of_life_is_not_taken_over_from(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "HEARTBEAT_INTERVAL", 0.0)
    first = claim(files)
    stop = threading.Event()

    def live() -> None:
        while not stop.wait(0.02):
            first.heartbeat()

    alive = threading.Thread(target=live)
    alive.start()
    try:
        with pytest.raises(SpoolBusyError):
            claim(files, wait=1.0, frozen=0.3)
    finally:
        stop.set()
        alive.join()
    first.check()
    first.release()


def test_who_took_over_without_the_lock_takes_it_when_it_is_free(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "HEARTBEAT_INTERVAL", 0.0)
    frozen = claim(files)
    successor = claim(files, wait=60.0, frozen=0.1)
    frozen.release()
    successor.heartbeat()
    with pytest.raises(SpoolBusyError):
        claim(files)
    successor.release()


def test_a_claim_that_is_gone_is_no_claim(files: Files) -> None:
    first = claim(files)
    for name in files.list("epoch"):
        files.remove(f"epoch/{name}")
    with pytest.raises(SpoolFencedError, match="it is gone"):
        first.check()
    first.release()


def test_what_has_begun_is_known(files: Files) -> None:
    assert active_claim(files) == ActiveClaim(0, 0)
    first = claim(files)
    assert active_claim(files) is None
    assert active_claim(files, before=1) == ActiveClaim(0, 0)
    first.begin(40)
    assert active_claim(files) == ActiveClaim(1, 40)
    first.release()
    second = claim(files)
    assert active_claim(files, before=2) == ActiveClaim(1, 40)
    second.begin(50)
    assert active_claim(files) == ActiveClaim(2, 50)
    assert len(files.list("epoch")) == 1
    second.release()


def test_of_two_that_claim_at_once_one_is_the_newer(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Files, "lock", lambda self, name: _Free())
    barrier = threading.Barrier(4)
    made: list[Claim] = []

    def rush() -> None:
        barrier.wait()
        made.append(claim(files))

    threads = [threading.Thread(target=rush) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one.epoch for one in made}) == 4
    newest = max(made, key=lambda one: one.epoch)
    newest.check()
    for one in made:
        if one is not newest:
            with pytest.raises(SpoolFencedError):
                one.check()


class _Free:
    def release(self) -> None:
        pass


def test_one_that_is_withdrawn_fences_nobody(files: Files) -> None:
    first = claim(files)
    first.begin(7)
    second = claim(files, wait=60.0, frozen=0.1)
    assert active_claim(files) is None
    second.withdraw()
    first.check()
    assert active_claim(files) == ActiveClaim(1, 7)
    first.release()


def test_one_that_waits_without_a_limit_says_so(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    first = claim(files)
    threading.Timer(0.2, first.release).start()
    claim(files, wait=math.inf).release()
    assert caplog.messages == [f"spool {files.url} is filled by another process; waiting for it to end"]
