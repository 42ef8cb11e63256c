"""What a broker means by the ERROR that it answers to CONNECT."""

from __future__ import annotations

from stompy.frames.frame import Frame


def knows_no_such_host(frame: Frame) -> bool:
    """Whether it is RabbitMQ, which takes the `host` header for one of its virtual hosts and has none of that name.

    `ERROR message:Bad CONNECT`, and `Virtual host 'localhost' access denied` in the body.
    """
    return frame.headers.get("message") == "Bad CONNECT" and frame.body.startswith(b"Virtual host '")


def client_id_in_use(frame: Frame) -> bool:
    """Whether it is ActiveMQ, which has an older session with the client id, perhaps one that it does not know is dead.

    `ERROR message:Broker: b - Client: me already connected from tcp://127.0.0.1:48770`.
    """
    return " already connected from " in frame.headers.get("message", "")
