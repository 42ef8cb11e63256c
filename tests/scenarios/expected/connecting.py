"""Connecting: session, login, version, heart-beats."""

from __future__ import annotations

from tests.scenarios.expected.model import (
    ARTEMIS,
    CLASSIC,
    EMBEDDED,
    ESCAPING,
    KINDS,
    RABBITMQ,
    Fact,
    fact,
    on,
)

CONNECTING: tuple[Fact, ...] = (
    fact(
        "connected",
        "connect",
        "What does CONNECTED say?",
        on(
            EMBEDDED,
            True,
            "no `heart-beat` in 1.0",
            "CONNECTED\nserver:stompy-broker\nversion:1.0\nsession:*\n!heart-beat",
            versions=["1.0"],
        ),
        on(
            EMBEDDED,
            True,
            "the version asked for",
            "CONNECTED\nserver:stompy-broker\nversion:1.*\nsession:*\nheart-beat:*",
        ),
        on(
            CLASSIC,
            True,
            "`version` and `heart-beat` in 1.0 too",
            "CONNECTED\nserver:ActiveMQ/*\nversion:1.*\nsession:ID:*\nheart-beat:0,0",
        ),
        on(
            ARTEMIS,
            True,
            'no `server` in 1.0: tell stompy, `connect(dialect="artemis")`',
            "CONNECTED\nversion:1.0\nsession:*\n!server",
            versions=["1.0"],
        ),
        on(
            ARTEMIS,
            True,
            "the version asked for",
            "CONNECTED\nserver:ActiveMQ-Artemis/* ActiveMQ Artemis Messaging Engine\nversion:1.*\nsession:*",
        ),
        on(
            RABBITMQ,
            True,
            "`version` and `heart-beat` in 1.0 too",
            "CONNECTED\nserver:RabbitMQ/*\nversion:1.*\nsession:session-*\nheart-beat:0,0",
        ),
    ),
    fact(
        "connect-host",
        "connect",
        "Is the `host` header looked at?",
        on((*EMBEDDED, *CLASSIC, *ARTEMIS), "accepted", "no: any is taken"),
        on(
            RABBITMQ,
            "refused",
            "it names the virtual host; `/` is the usual one, the name of the machine is none",
            "ERROR\nmessage:Bad CONNECT\n\nVirtual host 'nowhere.invalid' access denied*",
            grade="own",
        ),
    ),
    fact(
        "login-wrong",
        "login failure",
        "What does a wrong passcode get?",
        on(EMBEDDED, "ERROR", "ERROR", "ERROR\nmessage:access refused*\nversion:1.0,1.1,1.2"),
        on(CLASSIC, "ERROR", "ERROR", "ERROR\nmessage:User name [scenario] or password is invalid.\n!content-length"),
        on(
            ARTEMIS,
            "ERROR",
            "ERROR",
            "ERROR\nmessage:Security Error occurred: User name [scenario] or password is invalid",
        ),
        on(
            RABBITMQ,
            "ERROR",
            "ERROR",
            "ERROR\nmessage:Bad CONNECT\nversion:1.0,1.1,1.2\n\nAccess refused for user 'scenario'*",
        ),
    ),
    fact(
        "login-wrong-then",
        "login failure",
        "Is the connection up after that?",
        on((*EMBEDDED, *CLASSIC, *ARTEMIS), "closed", "closed"),
        on(
            RABBITMQ, "open for CONNECTED", "open: a correct CONNECT on the same connection gets CONNECTED", grade="own"
        ),
    ),
    fact(
        "login-none",
        "login failure",
        "What does a CONNECT without login get, where the broker knows users?",
        on(EMBEDDED, "ERROR", "ERROR", "ERROR\nmessage:access refused*"),
        on(CLASSIC, "ERROR", "ERROR", "ERROR\nmessage:User name [null] or password is invalid."),
        on(
            ARTEMIS, "ERROR", "ERROR", "ERROR\nmessage:Security Error occurred: User name [null] or password is invalid"
        ),
        on(RABBITMQ, "ERROR", "ERROR", "ERROR\nmessage:Bad CONNECT"),
    ),
    fact(
        "login-escaped",
        "login failure",
        "How must the passcode `a\\nb` (a backslash, an n) be written in CONNECT?",
        on((*EMBEDDED, *ARTEMIS), "raw", "as it is, as STOMP says"),
        on(
            (*CLASSIC, *RABBITMQ),
            "escaped",
            "escaped, `a\\\\nb`, in 1.0 too: values of CONNECT are unescaped",
            grade="own",
        ),
    ),
    fact(
        "negotiation",
        "negotiation",
        "Which version is spoken when several are offered?",
        on(KINDS, "1.2 1.1 1.2 1.0", "the highest common one"),
    ),
    fact(
        "negotiation-unknown",
        "negotiation",
        "What does `accept-version:9.9` get?",
        on(EMBEDDED, "ERROR, closed", "ERROR, closed", "ERROR\nmessage:no common version*\nversion:1.0,1.1,1.2"),
        on(
            CLASSIC,
            "ERROR, closed",
            "ERROR, closed; no `version` header",
            "ERROR\nmessage:Invalid Protocol version[9.9], supported versions are: [1.2, 1.1, 1.0]\n!version",
        ),
        on(ARTEMIS, "ERROR, closed", "ERROR, closed", "ERROR\nversion:1.0,1.1,1.2"),
        on(
            RABBITMQ,
            "ERROR, open for CONNECTED",
            "ERROR; the connection stays up",
            "ERROR\nmessage:Version mismatch\nversion:1.0,1.1,1.2",
            grade="own",
        ),
    ),
    fact(
        "negotiation-spaces",
        "negotiation",
        "What does `accept-version:1.0, 1.1, 1.2` get, with spaces?",
        on(EMBEDDED, "1.2", "1.2", "CONNECTED\nversion:1.2"),
        on((*CLASSIC, *RABBITMQ), "1.0", "1.0", "CONNECTED\nversion:1.0", grade="own"),
        on(ARTEMIS, "1.0", "1.0", "CONNECTED\nversion:1.0", grade="own"),
    ),
    fact(
        "negotiation-none",
        "negotiation",
        "What does a CONNECT without `accept-version` get?",
        on(KINDS, "1.0", "1.0"),
    ),
    fact(
        "heart-beat-agreed",
        "heart-beats",
        "What do `heart-beat:100,100`, `5000,0` and `0,5000` get?",
        on(EMBEDDED, "none none none", "nothing in 1.0", versions=["1.0"]),
        on(EMBEDDED, "100,100 100,100 100,100", "its own setting"),
        on(
            CLASSIC,
            "100,100 0,5000 5000,0",
            "what was asked for, the other way round; in 1.0 too, where it is enforced",
            grade="own",
            versions=["1.0"],
        ),
        on(CLASSIC, "100,100 0,5000 5000,0", "what was asked for, the other way round"),
        on(ARTEMIS, "none none none", "nothing in 1.0", versions=["1.0"]),
        on(
            ARTEMIS,
            "500,500 0,5000 5000,30000",
            "what was asked for, but at least 500; `30000` of a client that promises none",
        ),
        on(
            RABBITMQ,
            "1000,1000 0,5000 5000,0",
            "what was asked for in whole seconds; in 1.0 too",
            grade="own",
            versions=["1.0"],
        ),
        on(RABBITMQ, "1000,1000 0,5000 5000,0", "what was asked for, in whole seconds"),
    ),
    fact(
        "heart-beats-kept",
        "heart-beats",
        "Do beats of both sides keep a silent connection?",
        on(KINDS, True, "yes", versions=ESCAPING),
    ),
    fact(
        "heart-beat-missed",
        "heart-beats",
        "How is a client dropped that misses its beats?",
        on(EMBEDDED, "ERROR closed", "ERROR, closed", "ERROR\nmessage:nothing was heard for * s despite heart-beats"),
        on(CLASSIC, "closed", "closed without a word", grade="own"),
        on(
            ARTEMIS,
            "ERROR closed",
            "ERROR, closed",
            "ERROR\nmessage:AMQ229014: Did not receive data from * within the * connection TTL*",
        ),
        on(RABBITMQ, "closed", "closed without a word", grade="own"),
    ),
)
