from __future__ import annotations

from stompy.cli.sample import sample_lines
from tests.cli.conftest import FLIGHTS


def test_the_sample_is_of_the_real_file() -> None:
    real = FLIGHTS.read_bytes().split(b"\n")
    lines = sample_lines()
    assert len(lines) == 12
    assert set(lines) <= set(real)
