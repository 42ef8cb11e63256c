"""`python -m stompy`: the `stompy` command."""

from __future__ import annotations

import sys

from stompy.world import signal


def run() -> int:
    """Run the command of this process; see `stompy.cli.main.main`."""
    # Until the command handles Ctrl-C, and after that, it ends the process without a traceback.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from stompy.cli.main import main

    code = main()
    if code > 128:  # by a signal, which may come again while the interpreter ends
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
    return code


if __name__ == "__main__":
    sys.exit(run())
