"""Named listeners, and calling them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import stompy.compat.log as log
from stompy.compat.listener import ConnectionListener, Publisher
from stompy.compat.utils import Frame, length
from stompy.forks import forks

_NO_ARGUMENT = frozenset(("disconnected", "disconnecting", "heartbeat", "heartbeat_timeout"))
_EVENTS = tuple(name.removeprefix("on_") for name in vars(ConnectionListener) if name.startswith("on_"))


class Callbacks(Publisher):
    """Listeners, called in the order of their names."""

    def __init__(self) -> None:
        self.listeners: dict[str, Any] = {}
        self.current_host_and_port: tuple[str, int] | None = None
        self._hooks: dict[str, list[Callable[..., Any]]] = {}

    def set_listener(self, name: str, listener: Any) -> None:
        """Set a named listener.

        Raises:
            TypeError: a method of it takes the arguments of an old release of stomp.py.
        """
        assert listener is not None
        for event in _EVENTS:
            _check_callback(listener, event)
        self.listeners[name] = listener
        self._hooks.clear()

    def remove_listener(self, name: str) -> None:
        """Remove a listener."""
        del self.listeners[name]
        self._hooks.clear()

    def get_listener(self, name: str) -> Any:
        """Return a listener, or `None`."""
        return self.listeners.get(name)

    def _callbacks(self, event: str) -> list[Callable[..., Any]]:
        """Return the methods to call for an event, by the names of their listeners; without those that do nothing."""
        found = self._hooks.get(event)
        if found is None:
            ignored = getattr(ConnectionListener, f"on_{event}", None)
            methods = [getattr(listener, f"on_{event}", None) for _, listener in sorted(self.listeners.items())]
            found = [
                method for method in methods if method is not None and getattr(method, "__func__", None) is not ignored
            ]
            self._hooks[event] = found
        return found

    def process_frame(self, f: Frame, frame_str: bytes | None) -> None:
        """Call the listeners with a frame that has arrived."""
        if f.cmd == "MESSAGE":
            before = self._hooks.get("before_message")
            if before or before is None:
                self.notify("before_message", f)
            self.notify("message", f)
        elif (event := str(f.cmd).lower()) in ("connected", "message", "receipt", "error", "heartbeat"):
            self.notify(event, f)
        else:
            log.warning("unknown response frame type: '%.200s' (frame length was %d)", event, length(frame_str))

    def notify(self, frame_type: str, frame: Frame | None = None) -> None:
        """Call the listeners; what one raises is logged, and `SystemExit` also ends the session."""
        argument = self.current_host_and_port if frame_type == "connecting" else frame
        arguments = () if frame_type in _NO_ARGUMENT else (argument,)
        before = forks()
        for callback in self._callbacks(frame_type):
            try:
                callback(*arguments)
            except (SystemExit, Exception) as error:
                if forks() != before:
                    raise  # in a child that the listener has forked
                if isinstance(error, SystemExit):
                    log.info("on_%s exited: the session ends", frame_type)
                    self.disconnect_socket()
                else:
                    log.error("on_%s of a listener raised", frame_type, exc_info=True)

    def disconnect_socket(self) -> None:
        """End the session; overridden."""


def _check_callback(listener: Any, event: str) -> None:
    method = getattr(listener, f"on_{event}", None)
    if method is None:
        return
    expected = 0 if event in _NO_ARGUMENT else 1
    try:
        inspect.signature(method).bind(*[None] * expected)
    except ValueError:
        return  # built in
    except TypeError:
        names = "headers, body = frame.headers, frame.body" if event != "connecting" else "one tuple (host, port)"
        what = f"takes one argument, the frame: def on_{event}(self, frame), with {names}"
        name = f"{type(listener).__name__}.on_{event}"
        raise TypeError(f"{name} {what if expected else 'takes no argument'}, since stomp.py 7") from None
