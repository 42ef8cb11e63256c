"""The functions of the logger `stomp.py`."""

from __future__ import annotations

import logging
import sys

DEBUG = logging.DEBUG
INFO = logging.INFO

sys.modules["stompy.compat.logging"] = sys.modules[__name__]  # its name in stomp.py 8

verbose = False
"""Set by `log_to_stdout`."""

__logger = logging.getLogger("stomp.py")
debug = __logger.debug
info = __logger.info
warning = __logger.warning
error = __logger.error
isEnabledFor = __logger.isEnabledFor  # noqa: N816 - stomp.py's name
setLevel = __logger.setLevel  # noqa: N816 - stomp.py's name


def log_to_stdout(verbose_logging: bool = True) -> None:
    """Write everything to stdout."""
    global verbose
    handler = logging.StreamHandler(sys.stdout)
    handler.setLevel(logging.DEBUG)
    handler.setFormatter(logging.Formatter("%(asctime)s - %(name)s - %(levelname)s - %(message)s"))
    __logger.addHandler(handler)
    __logger.setLevel(logging.DEBUG)
    verbose = verbose_logging
