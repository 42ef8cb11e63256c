"""One seed for everything that is random in a run of the tests: printed at its end, and taken back from `STOMPY_SEED`.

What a test draws depends on the seed and on the words that it gives, never on the tests that ran before it.
"""

from __future__ import annotations

import os
import random

VARIABLE = "STOMPY_SEED"

SEED = int(os.environ.setdefault(VARIABLE, str(random.randrange(2**32))))
"""Of this run; set in the environment, so that its workers have the same."""

SEED_SETTING = f"{VARIABLE}={SEED}"
"""What an error says to have the same run again."""


def chance(*words: object) -> random.Random:
    """Return what draws at random, the same for the same seed and words."""
    return random.Random(" ".join(map(str, (SEED, *words))))
