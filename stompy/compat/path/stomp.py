"""Stands in for stomp.py where `stompy.compat.install` was called in a parent process."""

from __future__ import annotations

from stompy.compat.install import install

install()
