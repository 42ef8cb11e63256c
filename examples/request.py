"""Squares: `python examples/request.py URL serve`, and in another terminal `python examples/request.py URL 12`."""

from __future__ import annotations

import sys

import stompy

url, number = sys.argv[1:]
with stompy.connect(url) as conn:
    if number == "serve":
        conn.subscribe("/queue/square", lambda request: request.reply(str(int(request.text) ** 2)))
        conn.wait_closed()
    print(conn.request("/queue/square", number, timeout=5).text)
