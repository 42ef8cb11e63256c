"""A broker without a protocol: it answers whatever it gets with bytes that a test has written."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

from tests.support.peer import WITHIN


@contextlib.contextmanager
def answering(*answers: bytes) -> Iterator[str]:
    """Serve one client: an answer for each thing that it sends, then the end of the stream; yields the address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(WITHIN)

        def serve() -> None:
            with contextlib.suppress(ConnectionError):
                peer, _ = server.accept()
                with peer:
                    for answer in answers:
                        peer.recv(65536)
                        peer.sendall(answer)
                    peer.shutdown(socket.SHUT_WR)
                    while peer.recv(65536):
                        pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"stomp://127.0.0.1:{server.getsockname()[1]}"
        finally:
            thread.join()
