"""The module `log` under its name of stomp.py 8."""

from __future__ import annotations

import sys

import stompy.compat.log as log

sys.modules[__name__] = log
