from __future__ import annotations

import signal
import subprocess
import sys
import threading

from stompy.spark.source.signals import end_on_sigterm

PROGRAM = """
import os, signal, sys, time
from stompy.spark.source.signals import end_on_sigterm

end_on_sigterm()
try:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)
finally:
    os.kill(os.getpid(), signal.SIGTERM)
    print("goodbye was said")
"""


def test_the_process_says_goodbye_and_a_second_signal_does_not_cut_it_off() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stdout) == (143, "goodbye was said\n"), done.stderr


def test_a_handler_that_is_there_stays() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        end_on_sigterm()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)


def test_outside_the_main_thread_nothing_happens() -> None:
    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=end_on_sigterm)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is before
