"""Connections whose other end is a scripted broker."""

from __future__ import annotations

from tests.connection.conftest import calling as calling
from tests.connection.conftest import sessions as sessions
from tests.connection.conftest import talking as talking
