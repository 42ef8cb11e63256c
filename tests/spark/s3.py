"""A server that speaks S3 (moto's), with a bucket."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from urllib.request import Request, urlopen

# As a user sets them, for any server that speaks S3.
AWS = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@contextmanager
def s3_running() -> Iterator[str]:
    """Yield its address."""
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            lines = iter(server.stderr)
            address = next(found[0] for line in lines if (found := re.search(r"http://127\.0\.0\.1:\d+", line)))
            with ThreadPoolExecutor(1) as reading:
                reading.submit(lambda: [None for _ in lines])  # else its log fills the pipe
                with urlopen(Request(f"{address}/bucket", method="PUT"), timeout=150):
                    pass
                yield address
                server.kill()
        finally:
            server.kill()
