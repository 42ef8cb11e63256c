"""The console over HTTP: one page, for whoever has the token, and the check of each request. Pure."""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
from importlib import resources

from stompy.transport.websocket.handshake import END, HandshakeRefused, parse_head

_SCRIPTS = ("stomp", "dom", "store", "table", "messages", "live", "detail", "main")
"""The parts of the page's script, in their order."""

_POLICY = (
    "default-src 'none'; script-src '{script}'; style-src '{style}'; connect-src ws://{host}; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types"
)
"""What the page may do: run its own script and connect to its own console; it cannot write markup into itself."""

_HEADERS = (
    "Content-Type: text/html; charset=utf-8",
    "Cache-Control: no-store",
    "Connection: close",
    "Cross-Origin-Opener-Policy: same-origin",
    "Cross-Origin-Resource-Policy: same-origin",
    "Referrer-Policy: no-referrer",
    "X-Content-Type-Options: nosniff",
    "X-Frame-Options: DENY",
)


class Site:
    """Responds to the requests that reach the console.

    The name that a browser was given must be one of this machine, or a page of somebody else could reach the console
    by a name that leads here (DNS rebinding); the page that asks must be the console's own; and the path begins with
    the token.

    Args:
        port: where it listens.
        token: the first part of every path.
    """

    def __init__(self, port: int, token: str) -> None:
        shown = ("", ":80") if port == 80 else (f":{port}",)  # browsers leave the usual port out
        self._hosts = {name + end for name in ("127.0.0.1", "localhost", "[::1]") for end in shown}
        self._token = token.encode()

    def respond(self, head: bytes) -> bytes | None:
        """Return the response to a request; `None` where it may go on as one for a WebSocket.

        Raises:
            HandshakeRefused: it is refused.
        """
        target, headers = parse_head(head)
        host = headers["host"][0].lower()
        if host not in self._hosts:
            raise HandshakeRefused(403, "the console is reached by the names of its own machine only")
        if headers.get("origin", [f"http://{host}"]) != [f"http://{host}"]:
            raise HandshakeRefused(403, "a page of another origin has no access to the console")
        token, _, name = target.partition("?")[0].removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode("latin-1"), self._token):
            raise HandshakeRefused(403, "the address lacks the token: take the one that the broker has printed")
        if name == "stomp":
            return None
        if name:
            raise HandshakeRefused(404, "the console is one page")
        body, policy = page()
        lines = ["HTTP/1.1 200 OK", *_HEADERS, f"Content-Length: {len(body)}"]
        lines.append(f"Content-Security-Policy: {policy.replace('{host}', host)}")
        return "\r\n".join(lines).encode("ascii") + END + body


@functools.cache
def page() -> tuple[bytes, str]:
    """Return the page and its policy, in which `{host}` is left to be filled in."""
    parts = resources.files(__package__) / "page"
    style = (parts / "style.css").read_text(encoding="utf-8")
    scripts = [(parts / f"{name}.js").read_text(encoding="utf-8") for name in _SCRIPTS]
    script = '\n"use strict";\n(() => {\n' + "\n".join(scripts) + "})();\n"
    text = (parts / "page.html").read_text(encoding="utf-8")
    body = text.replace("{style}", style).replace("{script}", script)
    return body.encode(), _POLICY.replace("{script}", _hash(script)).replace("{style}", _hash(style))


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
