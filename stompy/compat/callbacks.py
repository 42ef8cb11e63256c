"""Named listeners, and calling them."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import stompy.compat.log as log
from stompy.compat.listener import ConnectionListener, Publisher
from stompy.compat.utils import Frame, length
from stompy.forks import forks

_NO_ARGUMENT = frozenset(("disconnected", "disconnecting", "heartbeat", "heartbeat_timeout"))
_OLD_ARGUMENTS = frozenset(("connected", "before_message", "message", "receipt", "error", "receiver_loop_completed"))
"""Events whose methods took headers and body before stomp.py 7."""
_EVENTS = tuple(name.removeprefix("on_") for name in vars(ConnectionListener) if name.startswith("on_"))


class Callbacks(Publisher):
    """Listeners, called in the order of their names."""

    def __init__(self) -> None:
        self.listeners: dict[str, Any] = {}
        self.current_host_and_port: tuple[str, int] | None = None

    def set_listener(self, name: str, listener: Any) -> None:
        """Set a named listener.

        Raises:
            TypeError: a method of it takes arguments that no release of stomp.py has.
        """
        assert listener is not None
        old = [event for event in _EVENTS if _takes_old_arguments(listener, event)]
        if old:
            warnings.warn(
                f"{type(listener).__name__}.on_{old[0]} takes headers and body, as before stomp.py 7: write "
                f"def on_{old[0]}(self, frame), with headers, body = frame.headers, frame.body",
                DeprecationWarning,
                stacklevel=3,
            )
            listener = _OldListener(listener, old)
        self.listeners[name] = listener

    def remove_listener(self, name: str) -> None:
        """Remove a listener."""
        del self.listeners[name]

    def get_listener(self, name: str) -> Any:
        """Return a listener, or `None`."""
        listener = self.listeners.get(name)
        return listener.listener if isinstance(listener, _OldListener) else listener

    def process_frame(self, f: Frame, frame_str: bytes | None) -> None:
        """Call the listeners with a frame that has arrived."""
        if f.cmd == "MESSAGE":
            listeners = sorted(self.listeners.items())
            self._call(listeners, "on_before_message", f)
            self._call(listeners, "on_message", f)
        elif (event := str(f.cmd).lower()) in ("connected", "message", "receipt", "error", "heartbeat"):
            self.notify(event, f)
        else:
            log.warning("unknown response frame type: '%.200s' (frame length was %d)", event, length(frame_str))

    def notify(self, frame_type: str, frame: Frame | None = None) -> None:
        """Call the listeners; what one raises is logged, and `SystemExit` also ends the session."""
        argument = self.current_host_and_port if frame_type == "connecting" else frame
        arguments = () if frame_type in _NO_ARGUMENT else (argument,)
        self._call(sorted(self.listeners.items()), f"on_{frame_type}", *arguments)

    def _call(self, listeners: list[tuple[str, Any]], name: str, *arguments: Any) -> None:
        before = forks()
        # The methods are looked up at each event, as programs replace them, and listeners may be mocks.
        for _, listener in listeners:
            try:
                callback = getattr(listener, name, None)
                if callback:
                    callback(*arguments)
            except (SystemExit, Exception) as error:
                if forks() != before:
                    raise  # in a child that the listener has forked
                if isinstance(error, SystemExit):
                    log.info("%s exited: the session ends", name)
                    self.disconnect_socket()
                else:
                    log.error("%s of a listener raised", name, exc_info=True)

    def disconnect_socket(self) -> None:
        """End the session; overridden."""


class _OldListener:
    """A listener some of whose methods take headers and body."""

    def __init__(self, listener: Any, events: list[str]) -> None:
        self.listener = listener
        self._old = frozenset(f"on_{event}" for event in events)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.listener, name)
        return partial(self._call, method) if name in self._old else method

    def _call(self, method: Callable[[Any, Any], Any], frame: Frame | None) -> None:
        changed = method(*(None, None) if frame is None else (frame.headers, frame.body))
        # Of those methods on_before_message alone returned something: headers and body for the next ones.
        if frame is not None and isinstance(changed, tuple) and len(changed) == 2:
            frame.headers, frame.body = changed


def _takes_old_arguments(listener: Any, event: str) -> bool:
    method = getattr(listener, f"on_{event}", None)
    expected = 0 if event in _NO_ARGUMENT else 1
    if method is None or _takes(method, expected):
        return False
    if event in _OLD_ARGUMENTS and _takes(method, 2):
        return True
    names = "headers, body = frame.headers, frame.body" if event != "connecting" else "one tuple (host, port)"
    what = f"takes one argument, the frame: def on_{event}(self, frame), with {names}"
    name = f"{type(listener).__name__}.on_{event}"
    raise TypeError(f"{name} {what if expected else 'takes no argument'}, since stomp.py 7")


def _takes(method: Callable[..., Any], count: int) -> bool:
    try:
        inspect.signature(method).bind(*[None] * count)
    except ValueError:
        return True  # built in
    except TypeError:
        return False
    return True
