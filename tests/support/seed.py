"""One seed for everything that is random in a run of the tests: printed at its end, and taken back from `--seed`.

What a test draws depends on the seed and on the words that it gives, never on the tests that ran before it.
"""

from __future__ import annotations

import random

from tests.support.options import chosen

SEED = chosen.seed
"""Of this run and its workers."""

SEED_SETTING = f"--seed={SEED}"
"""What an error says to have the same run again."""


def chance(*words: object) -> random.Random:
    """Return what draws at random, the same for the same seed and words."""
    return random.Random(" ".join(map(str, (SEED, *words))))
