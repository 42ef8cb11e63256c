"""What to write instead of each name of stomp.py, as data; the command's texts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Advice:
    """What to write natively.

    Attributes:
        text: one sentence.
        hand: whether the program does not run, or not as meant, on the adapter before somebody has changed it.
    """

    text: str
    hand: bool = False


MODULES = frozenset(
    (
        "adapter",
        "adapter.multicast",
        "adapter.ws",
        "colours",
        "connect",
        "constants",
        "exception",
        "listener",
        "log",
        "logging",
        "protocol",
        "transport",
        "utils",
    )
)

CONNECTIONS = {
    "Connection": "1.1",
    "Connection10": "1.0",
    "Connection11": "1.1",
    "Connection12": "1.2",
    "StompConnection10": "1.0",
    "StompConnection11": "1.1",
    "StompConnection12": "1.2",
    "WSConnection": "1.2",
    "WSStompConnection": "1.2",
    "MulticastConnection": "1.2",
}
"""The connection classes, and the version of STOMP that each speaks."""

LISTENERS = frozenset(
    (
        "ConnectionListener",
        "HeartbeatListener",
        "PrintingListener",
        "StatsListener",
        "TestListener",
        "WaitingListener",
    )
)

_WEBSOCKET = Advice('`stompy.connect("wss://host/path", websocket=stompy.WebSocketOptions(headers=...))`')
_LACKING = Advice("the session's own work, which the adapter does differently: remove it", hand=True)
_INNER = Advice("no equivalent: the session's own work; remove it")
_WIRE = Advice("no equivalent: frames are encoded and parsed for you; remove it")
LOGGING = Advice('`logging.getLogger("stompy")`; passcodes are never logged')

NAMES: dict[str, Advice] = {
    **{
        name: Advice(
            f'`stompy.connect(url, login=..., passcode=...)`; `versions="{version}"` only if it must be {version}'
        )
        for name, version in CONNECTIONS.items()
    },
    "WSConnection": _WEBSOCKET,
    "WSStompConnection": _WEBSOCKET,
    "WSTransport": _WEBSOCKET,
    "MulticastConnection": Advice("not in the adapter: use `stompy.broker.Broker` to do without a broker", hand=True),
    "MulticastTransport": _LACKING,
    "MCAST_GRP": _LACKING,
    "MCAST_PORT": _LACKING,
    "BaseConnection": Advice("`stompy.Connection`"),
    "ConnectionListener": Advice(
        "`stompy.ConnectionListener` for events of the connection; a handler per subscription for messages"
    ),
    "HeartbeatListener": Advice("`stompy.connect(heartbeat=(10, 10))`, in seconds; these are the defaults"),
    "PrintingListener": Advice('`logging.getLogger("stompy").setLevel("DEBUG")` logs every frame'),
    "Publisher": Advice("`add_listener` and `remove_listener` of the connection"),
    "StatsListener": Advice("`conn.stats()`"),
    "TestListener": Advice("`stompy.testing.listener.RecordingListener`, or `subscription.receive(timeout=...)`"),
    "WaitingListener": Advice(
        "`conn.send(..., confirm=True)`, or `receipt = conn.send(..., receipt=True)`, `receipt.wait()`"
    ),
    "StompException": Advice("`stompy.StompError`"),
    "ConnectionClosedException": Advice("`stompy.ConnectionLostError`"),
    "NotConnectedException": Advice("`stompy.NotConnectedError`"),
    "ConnectFailedException": Advice("`stompy.ConnectError`; its text and `__cause__` say why"),
    "InterruptedException": Advice("nothing: it is never raised"),
    "Frame": Advice("`stompy.Message` in handlers, `stompy.Frame` in listeners; `.headers`, `.body`, `.text`"),
    "HEARTBEAT_FRAME": _INNER,
    "Protocol10": Advice('`stompy.connect(versions="1.0")`'),
    "Protocol11": Advice('`stompy.connect(versions="1.1")`'),
    "Protocol12": Advice('`stompy.connect(versions="1.2")`'),
    "BaseTransport": _INNER,
    "Transport": _INNER,
    "__version__": Advice(
        "`stompy.__version__`; the adapter's is a text that begins with the release of stomp.py it follows"
    ),
    "tuple_version": Advice("nothing: `__version__` stays a text"),
    "encode": Advice("`text.encode()`, as `send` takes text and bytes"),
    "decode": Advice("`message.text`"),
    **dict.fromkeys(
        (
            "clean_headers",
            "clean_lines",
            "convert_frame",
            "is_eol_default",
            "join",
            "length",
            "merge_headers",
            "pack",
            "parse_frame",
            "parse_headers",
            "ENC_NEWLINE",
            "ENC_NULL",
            "HEADER_LINE_RE",
            "LINE_END_RE",
            "NULL",
            "PASSCODE_RE",
            "PREAMBLE_END_RE",
        ),
        _WIRE,
    ),
    "calculate_heartbeats": Advice("`conn.heartbeat`, the negotiated intervals in seconds"),
    "default_create_thread": _INNER,
    "get_errno": Advice("`error.errno`"),
    "get_uuid": Advice("`str(uuid.uuid4())`"),
    "is_localhost": _INNER,
    "LOCALHOST_NAMES": _INNER,
    "PollableQueue": _LACKING,
    "DEFAULT_SSL_VERSION": Advice("nothing: `stompy.Tls` asks for TLS 1.2 or newer", hand=True),
    "LINUX_KEEPALIVE_AVAIL": _LACKING,
    "MAC_KEEPALIVE_AVAIL": _LACKING,
    **dict.fromkeys(
        (
            "DEBUG",
            "INFO",
            "__logger",
            "debug",
            "error",
            "info",
            "isEnabledFor",
            "log_to_stdout",
            "setLevel",
            "verbose",
            "warning",
        ),
        LOGGING,
    ),
}

CONSTANT = Advice('the text itself, such as `"destination"`')
COLOUR = Advice("nothing: no part of the client")

ARGUMENTS: dict[str, Advice] = {
    "host_and_ports": Advice('the address: `stompy.connect("stomp://host:61613")`; several as a list'),
    "prefer_localhost": Advice("nothing: addresses are tried in their order; see `stompy.Reconnect(order=...)`"),
    "try_loopback_connect": Advice("nothing: name the address that you mean"),
    "reconnect_sleep_initial": Advice("`reconnect=stompy.Reconnect(first_delay=...)`"),
    "reconnect_sleep_increase": Advice("nothing: the bound of the delay doubles"),
    "reconnect_sleep_jitter": Advice("nothing: every delay is random"),
    "reconnect_sleep_max": Advice("`reconnect=stompy.Reconnect(max_delay=...)`"),
    "reconnect_attempts_max": Advice(
        "`timeouts=stompy.Timeouts(start=...)` in seconds for the first session, "
        "`reconnect=stompy.Reconnect(attempts=...)` for later ones"
    ),
    "timeout": Advice("`timeouts=stompy.Timeouts(connect=..., send=..., receipt=...)`; all are finite by default"),
    "heartbeats": Advice("`heartbeat=(send, receive)` in seconds, not milliseconds; (10, 10) by default"),
    "keepalive": Advice("`tcp=stompy.TcpOptions(keepalive=True, ...)`; on by default"),
    "vhost": Advice("`vhost=`"),
    "auto_decode": Advice("nothing: `message.body` is bytes, `message.text` is decoded"),
    "encoding": Advice("nothing: `message.text` uses the charset of `content-type`"),
    "auto_content_length": Advice("`content_length=` of `connect` or of one `send`"),
    "heart_beat_receive_scale": Advice("`heartbeat_tolerance=`"),
    "bind_host_port": Advice("`tcp=stompy.TcpOptions(source=..., source_port=...)`"),
    "ws": _WEBSOCKET,
    "ws_path": _WEBSOCKET,
    "header": _WEBSOCKET,
    "binary_mode": _WEBSOCKET,
}
"""The arguments of a connection, in the order in which they may be positional up to `reconnect_attempts_max`."""

GONE_ARGUMENT = Advice(
    "no argument of stomp.py 8 and 9, a TypeError: for TLS call `set_ssl`, for a login `connect`", hand=True
)

MEMBERS: dict[str, Advice] = {
    "connect": Advice("`conn = stompy.connect(url, login=..., passcode=...)`, which returns when the session is open"),
    "disconnect": Advice("`conn.close()`, or `with stompy.connect(...) as conn:`"),
    "send": Advice("`conn.send(destination, body, headers={...})`"),
    "send_frame": Advice("the method of the command, such as `conn.send`"),
    "subscribe": Advice("`conn.subscribe(destination, handler)`, or `for message in conn.subscribe(destination):`"),
    "unsubscribe": Advice("`subscription.close()`"),
    "ack": Advice("`message.ack()`"),
    "nack": Advice("`message.nack()`"),
    "begin": Advice("`with conn.transaction() as tx:`"),
    "commit": Advice("the end of `with conn.transaction() as tx:`"),
    "abort": Advice("an exception inside `with conn.transaction() as tx:`, or `tx.abort()`"),
    "set_listener": Advice(
        "`conn.add_listener(listener)`, or `stompy.connect(listeners=[listener])`; listeners have no names"
    ),
    "get_listener": Advice("the object that you added"),
    "remove_listener": Advice("`conn.remove_listener(listener)`"),
    "is_connected": Advice("`conn.connected`"),
    "set_receipt": Advice("the `Receipt` that `conn.send(..., receipt=True)` returns"),
    "set_ssl": Advice('`stompy.connect("stomp+ssl://...", tls=stompy.Tls(ca=..., cert=..., key=...))`'),
    "get_ssl": Advice("the `stompy.Tls` that you made"),
    "is_eol": _WIRE,
    "version": Advice("`conn.version`, the negotiated one"),
    "heartbeats": Advice("`conn.heartbeat`, the negotiated ones in seconds"),
    "received_heartbeat": Advice("`conn.stats()`; a broker that is silent for too long ends the session by itself"),
    "heart_beat_receive_scale": Advice("`stompy.connect(heartbeat_tolerance=...)`"),
    "auto_content_length": Advice("`stompy.connect(content_length=...)`"),
    "heartbeat_thread": _INNER,
    **dict.fromkeys(("disconnecting", "heartbeat_terminate_event", "next_outbound_heartbeat", "running"), _LACKING),
    "transport": Advice("the connection itself"),
    "start": Advice("remove it: gone since stomp.py 6, `connect` starts", hand=True),
    "stop": Advice("`disconnect`: `stop` is gone since stomp.py 6", hand=True),
}
"""Members of a connection."""

TRANSPORT: dict[str, Advice] = {
    "current_host_and_port": Advice("`conn.address`"),
    "_Transport__host_and_ports": Advice("the addresses that you passed, or `conn.address`"),
    "override_threading": Advice("no equivalent: threads are daemons and joined at `disconnect`"),
    "connected": Advice("`conn.connected`"),
    "is_connected": Advice("`conn.connected`"),
    "socket": Advice("`conn.address`; the adapter keeps its socket to itself", hand=True),
    "header": ARGUMENTS["header"],
    "set_listener": MEMBERS["set_listener"],
    "get_listener": MEMBERS["get_listener"],
    "remove_listener": MEMBERS["remove_listener"],
    "set_ssl": MEMBERS["set_ssl"],
    "get_ssl": MEMBERS["get_ssl"],
    "set_receipt": MEMBERS["set_receipt"],
    "vhost": ARGUMENTS["vhost"],
    "ws_path": ARGUMENTS["ws_path"],
    "wait_for_connection": Advice("nothing: `stompy.connect` returns when the session is open"),
    "start": Advice("nothing: `stompy.connect` starts"),
    "stop": MEMBERS["disconnect"],
    "disconnect_socket": MEMBERS["disconnect"],
    **dict.fromkeys(
        (
            "attempt_connection",
            "bind_host_port",
            "cleanup",
            "connection_error",
            "create_thread_fc",
            "io_thread",
            "listeners",
            "notify",
            "process_frame",
            "running",
            "send",
            "set_connected",
            "transmit",
        ),
        _INNER,
    ),
    **dict.fromkeys(
        (
            "blocking",
            "disconnecting",
            "notified_on_disconnect",
            "receive",
            "receiver_thread",
            "sel",
            "send_queue",
            "shutdown_queue",
        ),
        _LACKING,
    ),
}
"""Members of `transport`."""

PRIVATE = Advice("a private attribute that the adapter may lack; natively `conn.address` and `conn.stats()`", hand=True)

CALLBACKS: dict[str, tuple[int, Advice]] = {
    "on_connecting": (1, Advice("`on_reconnecting(attempt, delay)`")),
    "on_connected": (1, Advice("`on_connected(frame)` of a `stompy.ConnectionListener`")),
    "on_disconnecting": (0, Advice("what comes before your own `conn.close()`")),
    "on_disconnected": (
        0,
        Advice("`on_disconnected(reason)`; instead of reconnecting in it, `stompy.connect(reconnect=True)`"),
    ),
    "on_heartbeat_timeout": (0, Advice("`on_heartbeat_timeout()`; `on_disconnected` follows")),
    "on_before_message": (1, Advice("the start of the handler: `conn.subscribe(destination, handler)`")),
    "on_message": (
        1,
        Advice("a handler, `conn.subscribe(destination, handler)`; it takes a `stompy.Message` and may take its time"),
    ),
    "on_receipt": (1, Advice("`receipt.wait()` or `conn.send(..., confirm=True)`; else `on_receipt(frame)`")),
    "on_error": (1, Advice("`on_error(frame)`; the call that failed raises `stompy.BrokerError` too")),
    "on_send": (1, Advice("`conn.stats()`, or the DEBUG log of `stompy`")),
    "on_heartbeat": (0, Advice("`conn.stats()`")),
    "on_receiver_loop_completed": (1, Advice("`on_disconnected(reason)`")),
}
"""Methods of listeners: how many arguments each is called with, and what to write."""

HEADERS: dict[str, Advice] = {
    "client-id": Advice("`stompy.connect(client_id=...)`"),
    "accept-version": Advice("`stompy.connect(versions=...)`"),
    "heart-beat": Advice("`stompy.connect(heartbeat=...)`"),
    "activemq.prefetchSize": Advice("`subscribe(prefetch=...)`; with 0, ActiveMQ delivers nothing: 1 is one at a time"),
    "prefetch-count": Advice("`subscribe(prefetch=...)`"),
    "consumer-window-size": Advice("`subscribe(prefetch=...)`"),
    "activemq.subscriptionName": Advice("`subscribe(durable=...)`"),
    "durable-subscription-name": Advice("`subscribe(durable=...)`"),
    "activemq.exclusive": Advice("`subscribe(exclusive=True)`"),
    "AMQ_SCHEDULED_DELAY": Advice("`send(delay=...)`, in seconds"),
    "JMSXGroupID": Advice("`send(group=...)`"),
    "reply-to": Advice("`conn.request(destination, body)` sends and waits for the reply"),
}
"""Headers of brokers for which there are options."""

MISSPELT = {"password": "passcode", "pass": "passcode", "passwd": "passcode", "login": "username", "user": "username"}
"""Keywords of `connect` that become headers although an argument was meant."""
