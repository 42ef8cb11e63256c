"""Which protocol the first bytes of a peer belong to, for whoever dials the wrong port."""

from __future__ import annotations

GREETING_SIZE = 16
"""How many bytes are enough to tell."""

_BEGINNINGS = (
    (b"\x15\x03", "TLS"),
    (b"\x16\x03", "TLS"),
    (b"AMQP", "AMQP"),
    (b"HTTP/", "HTTP"),
    (b"GET ", "HTTP"),
    (b"ERROR\n", "STOMP"),
    (b"ERROR\r\n", "STOMP"),
    (b"CONNECT\n", "STOMP"),
    (b"CONNECT\r\n", "STOMP"),
    (b"STOMP\n", "STOMP"),
    (b"STOMP\r\n", "STOMP"),
)
_OPENWIRE = b"\x01ActiveMQ"
"""WIREFORMAT_INFO and its magic; the size of the command may stand before it."""
_MQTT_ANSWERS = (0x20, 0xE0)
"""CONNACK and DISCONNECT; the second byte is the number of those that follow."""


def protocol_of(start: bytes) -> str | None:
    """Return the protocol whose peers begin like this, or `None`.

    Args:
        start: the first bytes of a peer, `GREETING_SIZE` of them where there are so many.
    """
    for beginning, protocol in _BEGINNINGS:
        if start.startswith(beginning):
            return protocol
    if start.startswith(_OPENWIRE) or start[4:].startswith(_OPENWIRE):
        return "OpenWire"
    if len(start) >= 2 and start[0] in _MQTT_ANSWERS and start[1] == len(start) - 2:
        return "MQTT"
    return None
