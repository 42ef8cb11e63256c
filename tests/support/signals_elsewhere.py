"""`python -m stompy`, but the system gives each SIGTERM to a thread that is not the main one, as it may."""

from __future__ import annotations

import signal
import sys
import threading

from stompy.cli.main import main

if __name__ == "__main__":
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    # Threads that are started from now on inherit this, so that the one above is left.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    sys.exit(main())
