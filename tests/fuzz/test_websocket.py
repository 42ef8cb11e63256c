"""The inputs that the fuzzer of WebSocket starts from, run with every test run."""

from __future__ import annotations

import pytest

from stompy.transport.websocket.frames import Decoder
from tests.fuzz import websocket


@pytest.mark.parametrize("size", [0, 1, 3])
def test_what_the_fuzzer_asserts_holds_for_every_seed(size: int) -> None:
    for seed in (b"", b"\0", *websocket.seeds()):
        websocket.check(seed[:1] + bytes((size,)) + seed[websocket.PREFIX :])


def test_the_target_notices_a_decoder_that_disagrees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Decoder, "receive", lambda *_: [])
    with pytest.raises(AssertionError):
        websocket.check(next(websocket.seeds()))
