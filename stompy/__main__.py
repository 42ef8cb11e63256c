"""`python -m stompy`: the `stompy` command."""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # `signal` makes enumerations, which takes long
import sys


def run() -> int:
    """Run the command of this process; see `stompy.cli.main.main`."""
    from stompy.cli.main import main

    code = main()
    if code > 128:  # by a signal, which may come again while the interpreter ends
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
    return code


if __name__ == "__main__":
    sys.exit(run())
