"""A relay between a client and a broker that knows where frames end, and changes or cuts one of them."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType

WITHIN = 20.0
"""Seconds after which a relay gives up on a connection."""

Edit = Callable[[int, bytes], "bytes | None"]
"""Given the number of a frame and its bytes, returns what to pass on, or `None` to cut both connections before it."""


def unchanged(number: int, frame: bytes) -> bytes | None:
    """Pass a frame on."""
    return frame


class FrameRelay:
    """Relays one connection; frames must have no NUL in their bodies.

    Args:
        host: of the broker.
        port: of the broker.
        up: of the client's frames, counted from the first BEGIN.
        down: of the broker's frames since then.
    """

    def __init__(self, host: str, port: int, *, up: Edit = unchanged, down: Edit = unchanged) -> None:
        self._up, self._down = up, down
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(WITHIN)
        self._target = host, port
        self._sockets: list[socket.socket] = []
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run, name="relay")
        self.frames: list[bytes] = []
        """The client's frames from the first BEGIN on, as they came."""

    @property
    def url(self) -> str:
        """The address for the client."""
        return f"stomp://127.0.0.1:{self._listener.getsockname()[1]}"

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            client, _ = self._listener.accept()
            self._sockets.append(client)
            broker = socket.create_connection(self._target, WITHIN)
            self._sockets.append(broker)
            back = threading.Thread(target=self._pump, args=(broker, client, self._edit_down), name="relay-down")
            back.start()
            self._pump(client, broker, self._edit_up)
            back.join()

    def _edit_up(self, frame: bytes) -> bytes | None:
        if not self._begun.is_set():
            if not frame.lstrip(b"\n").startswith(b"BEGIN\n"):
                return frame
            self._answers = 0
            self._begun.set()
        self.frames.append(frame)
        return self._up(len(self.frames) - 1, frame)

    def _edit_down(self, frame: bytes) -> bytes | None:
        if not self._begun.is_set():
            return frame
        self._answers += 1
        return self._down(self._answers - 1, frame)

    def _pump(self, source: socket.socket, sink: socket.socket, edit: Callable[[bytes], bytes | None]) -> None:
        rest = b""
        try:
            while data := source.recv(1 << 16):
                *frames, rest = (rest + data).split(b"\0")
                edited: list[bytes] = []
                for frame in frames:
                    passed = edit(frame + b"\0")
                    if passed is None:
                        sink.sendall(b"".join(edited))
                        return
                    edited.append(passed)
                sink.sendall(b"".join(edited))
        except OSError:
            pass
        finally:
            for each in (source, sink):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> FrameRelay:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._thread.join(WITHIN)
        for each in self._sockets:
            each.close()
