"""The embedded broker, as users hold it.

Locks: `Broker._starting` lets one thread at a time start it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Literal, get_args

from stompy.arguments import check_arguments, check_heartbeat
from stompy.broker.acceptor import Acceptor, Listening
from stompy.broker.commands import Commands
from stompy.broker.management import Management
from stompy.broker.profile import OWN, Profile
from stompy.broker.profiles import ACTIVEMQ, ACTIVEMQ_5, ARTEMIS
from stompy.broker.rabbitmq import RABBITMQ, RABBITMQ_3
from stompy.broker.router import BrokerRouter
from stompy.broker.settings import BrokerLimits, FrameHook, Settings
from stompy.broker.users import User, Users
from stompy.broker.work import Clock
from stompy.closable import Closable
from stompy.deadline import Deadline, check_seconds
from stompy.default import DEFAULT, Default, given
from stompy.errors import ConfigurationError, NotConnectedError
from stompy.forks import Owner
from stompy.frames.grammar import NEGOTIABLE, Version, parse_version
from stompy.locks import Rank, make_lock
from stompy.protocol.heartbeat import HeartbeatOffer
from stompy.secret import Secret, without_traceback
from stompy.transport.base import TransportListener
from stompy.world import os, secrets

if TYPE_CHECKING:
    import ssl

    from stompy.broker.console import Console
    from stompy.transport.tls.options import Tls

_LOG = logging.getLogger("stompy.broker")

_GRACE = 0.5
"""Seconds that clients get to take the end of the stream, before `close` ends it for them."""


Like = Literal["activemq", "activemq5", "artemis", "rabbitmq", "rabbitmq3"]
"""The names that `Broker(like=...)` takes."""

_PROFILES = {profile.name: profile for profile in (ACTIVEMQ, ACTIVEMQ_5, ARTEMIS, RABBITMQ, RABBITMQ_3)}


class Broker(Management, Closable):
    """A STOMP 1.0, 1.1 and 1.2 broker for development, tests and demos, in this process and in memory.

    Destinations that begin with `/topic/` are topics: every live subscription gets each message, and nothing is kept
    for later but for durable subscriptions. All others are queues, made by their first use: each message goes to one
    subscription.

    - **Wildcards.** In a SUBSCRIBE `*` stands for one word of a name, and `>` or `#` at its end for the rest, with
      dots between words; for queues and topics, also for later ones. Nothing can be sent to a pattern.
    - **Composite destinations.** `/queue/a,/topic/b` sends to each and subscribes to each; copies of such a message
      have `original-destination`.
    - **Temporary destinations.** `/temp-queue/NAME` and `/temp-topic/NAME` belong to their session and end with it.
      In `reply-to` they become a name that other sessions can send to; a reply whose owner is gone is dropped.
    - **Headers of SEND.** `priority` (0 to 9, higher ones first), `persistent:false` (gone after `close` or `restart`;
      all others stay), `expires` (moment) or `expiration` (duration), `AMQ_SCHEDULED_DELAY` or `AMQ_SCHEDULED_TIME`,
      all in milliseconds, `JMSXGroupID` with `JMSXGroupSeq:-1` to end the group, `_AMQ_DUPL_ID` (the last 20,000 are
      remembered; a transaction that has one of them cannot be committed).
    - **Headers of SUBSCRIBE.** `selector`, `activemq.subscriptionName` (or `durable-subscription-name`) with a
      `client-id` in CONNECT, `browser`, `activemq.exclusive`, `no-local`, `prefetch-count` or
      `activemq.prefetchSize`. An UNSUBSCRIBE that names the durable subscription deletes it. A browser ends with a
      MESSAGE that has `browser:end`.
    - **Selectors** are JMS selectors: the text of a header is compared with numbers as the number it spells, and a
      condition on a header that is missing is unknown, so that neither it nor its NOT is fulfilled.
    - **Other headers** that a known broker gives a meaning, and this one cannot, are answered with ERROR.

    Where STOMP leaves the choice to the server:

    - **Acknowledging.** In the modes `client` and `client-individual` at most `BrokerLimits.prefetch` messages wait for
      their ACK; a SUBSCRIBE may say otherwise with `prefetch-count` (or `activemq.prefetchSize`). As at the brokers
      that have these headers, `prefetch-count:0` is no bound, and with `activemq.prefetchSize:0`, or less than 0 in
      either, nothing is ever delivered, which the log warns of. In `auto` mode a message counts as consumed when it was
      handed to the connection.
    - **Message ids.** Each copy of a message has an id that no other copy has, also over a restart, and keeps it when
      it is delivered again.
    - **NACK.** The message goes back to its place in the queue and is delivered again with `redelivered:true`, up to
      `attempts` deliveries in all; the next NACK moves it to the queue `dead_letter`, with the headers
      `original-destination`, `delivery-count` and `dead-letter-reason`. Each time it is delivered again,
      `redelivery-count` says how often it was before. A refused message of a topic goes there at once, as a topic keeps
      nothing to deliver again. A message that is refused as often in the dead-letter queue itself is given up, with a
      warning in the log.
    - **Lost connections.** An unacknowledged message goes back to its place with `redelivered:true`; that does not
      count as one of its `attempts`. So does a message not yet written to the connection, in any mode. For a
      topic, which keeps nothing, it is gone.
    - **Slow consumers.** A subscription of a queue gets nothing more while its session's write queue is full. A topic
      does not wait: when the backlog of a subscription is full, its session is ended with an ERROR that says so.
    - **A header that a subscriber's version cannot express** (a line end in 1.0) sends the message to the dead-letter
      queue instead.
    - **Full.** A SEND or COMMIT that a queue cannot take is answered with ERROR. After any ERROR the connection is
      closed, in every version. The limits are for senders: a full queue of dead letters or of expired messages still
      takes those that are moved there, so that none is lost.

    It may be started again after `close`; its queues then still hold their messages, and the port is the same.

    Args:
        host: where to listen. Anything but the own machine is warned about.
        port: 0 takes a free one.
        tls: speak TLS only: `Tls(cert=..., key=...)`, with `ca=` to ask clients for certificates; or an
            `ssl.SSLContext` for servers. Files are read at each start.
        unix: the path of a Unix socket, which takes the place of `host` and `port`. A file that a killed broker left
            is replaced.
        unix_mode: permissions of that file; write permission is the right to connect. By default only the own user.
        ws: take STOMP over WebSocket too: `True` on the same port, where the first bytes of a client decide, or a port
            of its own; 0 takes a free one. With `tls`, `wss://`.
        origins: whose web pages may connect by WebSocket, such as `"http://localhost:3000"`; `"*"` means all, and
            `"null"` pages from files. None by default: clients that are not browsers need none, and neither do the
            pages of `serve`.
        serve: a folder of files for browsers, which get them where they connect by WebSocket: so a page has the right
            origin. Every client can read all of it.
        console: serve a web page that shows the broker and manages it, on this machine alone, on this port; `True` and
            0 take a free one. See `console_url`.
        versions: the versions to speak, as `Version` or text.
        users: by login a passcode, for a user with all rights, or a `stompy.broker.User` with rights of its own
            and, if you like, only the hash of a passcode; `None` accepts every client.
        heartbeat: `(send, receive)` in seconds: how often it can beat, and how often it wants the client to.
        require_host: refuse a 1.1 or 1.2 CONNECT without `host`.
        attempts: see above; `None` for no limit.
        dead_letter: see above.
        expired: the queue to which expired messages go, with the headers of dead letters; `None` drops them.
        limits: bounds for its clients; by default `BrokerLimits()`.
        like: the broker to stand in for: `"activemq"` (6), `"activemq5"`, `"artemis"`, `"rabbitmq"` (4) or
            `"rabbitmq3"`. It then behaves as that one does; the reference says where it does not.
        on_frame: called with `"received"` or `"sent"`, the session's id and each `Frame`, CONNECT and its passcode
            included, on the session's threads.

    Raises:
        ConfigurationError: an argument is invalid.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        tls: Tls | ssl.SSLContext | None = None,
        unix: str | os.PathLike[str] | None = None,
        unix_mode: int = 0o600,
        ws: bool | int = False,
        origins: Sequence[str] = (),
        serve: str | os.PathLike[str] | None = None,
        console: bool | int = False,
        versions: Sequence[Version | str] = NEGOTIABLE,
        users: Mapping[str, User | str] | None = None,
        heartbeat: tuple[float, float] = (0.1, 0.1),
        require_host: bool = False,
        attempts: int | None = 7,
        dead_letter: str = "/queue/DLQ",
        expired: str | None = None,
        limits: BrokerLimits | Default = DEFAULT,
        like: Like | None = None,
        on_frame: FrameHook | None = None,
    ) -> None:
        # From here on, no local variable shows a credential in a traceback.
        hidden, users = Secret(users), None
        check_arguments(Broker.__init__, locals())
        check_heartbeat(heartbeat)
        known = without_traceback(lambda: _users_of(hidden.reveal()))
        profile = profile_named(like)
        asked = given(limits, BrokerLimits())
        self._settings = Settings(
            **{each.name: getattr(asked, each.name) for each in fields(BrokerLimits)},
            versions=tuple(parse_version(version) for version in versions),
            users=known,
            heartbeat=HeartbeatOffer.from_seconds(*heartbeat),
            require_host=require_host,
            attempts=attempts,
            dead_letter=dead_letter,
            expired=expired,
            on_frame=on_frame,
            profile=profile,
        )
        self._listening = Listening(
            host=host,
            port=port,
            tls=tls,
            unix=unix,
            unix_mode=unix_mode,
            ws=ws,
            origins=origins,
            serve=serve,
            versions=self._settings.versions,
            guarded=known is not None,
        )
        instance = secrets.token_hex(3)
        super().__init__(BrokerRouter(self._settings, instance=instance))
        commands = Commands(self._router, self._settings)
        self._acceptor = Acceptor(self._router, commands, self._settings, instance=instance)
        self._console: Console | None = None
        if console is not False:
            from stompy.broker.console import Console

            at = int(console is not True and console)
            self._console = Console(self, self._router, self._settings, port=at, instance=instance)
        self._starting = make_lock(Rank.BROKER_START, "start")
        self._listeners: list[TransportListener] = []
        self._owner = Owner("broker")  # of its threads and sockets, from the last start on

    def start(self) -> Broker:
        """Listen, and serve clients from now on; return the broker. Nothing happens if it runs already.

        Raises:
            ConfigurationError: the address cannot be listened on, e.g. as its port is in use.
        """
        with self._starting:
            if self._acceptor.runs:
                self._owner.check()
                return self
            if self._listening.listener is not None and self._listeners:
                raise ConfigurationError("this broker's listener is closed; make a new broker with a new listener")
            if self._console is not None:
                self._console.start()
            try:
                listeners = self._listen()
            except BaseException:
                self._stop_console(0.0)
                raise
            self._listeners = listeners
            self._owner = self._router.owner = Owner("broker")
            self._router.timer.start()
            self._acceptor.start(listeners)
        _LOG.info("listening on %s; for development, in memory", self._where())
        return self

    def close(self, *, timeout: float | None = 5.0) -> None:
        """Stop listening, end all sessions and wait for their threads. Nothing happens if it does not run.

        Clients see the end of the stream, as when a broker goes down; unacknowledged messages are back in their
        queues.

        Args:
            timeout: seconds after which the threads that are left are abandoned, with a word in the log; `None` for no
                limit.
        """
        check_seconds(timeout)
        if self._acceptor.runs and self._owner.forked:
            return
        self._stop_console(timeout)
        if self._acceptor.stop(self._listeners, Deadline(timeout), grace=_GRACE):
            self._router.timer.stop(timeout)
            self._drop_transient()
            self._router.owner = None
            _LOG.info("stopped listening on %s", self._where())

    @property
    def closed(self) -> bool:
        """Whether it does not run: it was not started yet, or was closed."""
        return not self._acceptor.runs

    def restart(self, *, timeout: float | None = 5.0) -> None:
        """Cut all sessions at once and go on, as a broker that was killed and came up again with its store on disk.

        Unacknowledged messages are back in their queues and are delivered again; open transactions are gone, and
        so are messages that waited for the subscribers of topics. The port never stops listening; for a time without a
        broker, use `close` and `start`.

        Args:
            timeout: seconds after which threads of the old sessions are abandoned, with a word in the log; `None` for
                no limit.

        Raises:
            NotConnectedError: the broker does not run.
        """
        check_seconds(timeout)
        if not self._acceptor.runs:
            raise NotConnectedError("the broker does not run")
        self._owner.check()
        self._acceptor.end_sessions(Deadline(timeout), grace=0.0)
        self._drop_transient()
        _LOG.info("restarted on %s", self._where())

    def _drop_transient(self) -> None:
        with self._router.turn():
            self._router.publisher.drop_transient()

    @property
    def clock(self) -> Clock:
        """The clock by which messages expire and are delayed; `broker.clock.advance(60)` turns it forward."""
        return self._router.clock

    @property
    def server(self) -> str:
        """The `server` header of CONNECTED."""
        return self._settings.profile.server

    def __enter__(self) -> Broker:
        return self.start()

    @property
    def url(self) -> str:
        """The address for clients of this machine, such as `stomp://127.0.0.1:61613`; still known after `close`.

        Raises:
            NotConnectedError: the broker was never started, so that it has no port yet.
        """
        return self._listening.url

    @property
    def ws_url(self) -> str:
        """The same by WebSocket, such as `ws://127.0.0.1:61613/`.

        Raises:
            NotConnectedError: the broker was never started, or not with `ws`.
        """
        return self._listening.ws_url

    @property
    def console_url(self) -> str:
        """The address of the console, for a browser; it is the right to do everything.

        Raises:
            NotConnectedError: the broker was never started, or not with `console`.
        """
        if self._console is None:
            raise NotConnectedError("the broker has no console: set console=True")
        return self._console.url

    def _listen(self) -> list[TransportListener]:
        return self._listening.open()

    def _stop_console(self, timeout: float | None) -> None:
        if self._console is not None:
            self._console.stop(Deadline(timeout))

    def _where(self) -> str:
        return "?" if not self._listeners else self.url

    def __repr__(self) -> str:
        if not hasattr(self, "_listeners"):  # in a traceback of the constructor
            return "<Broker not made>"
        state = "running" if self._acceptor.runs else "stopped"
        return f"<Broker {self._where()} {state}>"


def _users_of(users: Mapping[str, User | str] | None) -> Users | None:
    check_arguments(Broker.__init__, {"users": users}, hidden=("users",))
    return None if users is None else Users(users)


def profile_named(like: str | None) -> Profile:
    """Return the profile of a name; the broker's own ways for `None`.

    Raises:
        ConfigurationError: there is none of that name.
    """
    if like is None:
        return OWN
    if like not in _PROFILES:
        raise ConfigurationError(f"like must be one of {', '.join(get_args(Like))}, not {like!r}")
    return _PROFILES[like]
