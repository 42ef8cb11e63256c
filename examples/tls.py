"""Two brokers with TLS, over every failure: `python examples/tls.py CA PORT PORT`."""

from __future__ import annotations

import sys
from pathlib import Path

import stompy

ca, first, second = sys.argv[1:]
url = f"failover:(stomp+ssl://localhost:{first},stomp+ssl://localhost:{second})"
with stompy.connect(url, tls=stompy.Tls(ca=Path(ca)), timeouts=stompy.Timeouts(start=60)) as conn:
    conn.subscribe("/queue/lines", lambda message: print(message.text, flush=True))
    conn.wait_closed()
