"""What is found in programs: each small program with the uses that must be reported, and those that need a hand."""

from __future__ import annotations

import textwrap

import pytest

from stompy.cli.migrate.scan import Use, uses_of


def found(program: str) -> list[Use]:
    return uses_of(textwrap.dedent(program))


def advised(program: str) -> dict[str, str]:
    return {use.name: use.text for use in found(program)}


def hands(program: str) -> list[str]:
    return [f"{use.line} {use.name}: {use.text}" for use in found(program) if use.hand]


@pytest.mark.parametrize(
    ("line", "name", "instead"),
    [
        ("import stomp", "import stomp", "import stompy.compat as stomp"),
        ("import stomp as s", "import stomp as s", "import stompy.compat as s"),
        ("import stomp.utils as u", "import stomp.utils as u", "import stompy.compat.utils as u"),
        ("import stomp.utils", "import stomp.utils", "import stompy.compat.utils"),
        ("from stomp import Connection12", "from stomp import Connection12", "from stompy.compat import Connection12"),
        ("from stomp.utils import Frame as F", "from stomp.utils import Frame as F", "from stompy.compat.utils import"),
        ("from stomp import *", "from stomp import *", "from stompy.compat import *"),
    ],
)
def test_an_import_is_told_with_that_of_the_adapter(line: str, name: str, instead: str) -> None:
    assert instead in advised(line)[name]


def test_a_program_without_stomp_py_has_no_uses() -> None:
    assert found("import socket\nconn = socket.socket()\nconn.send(b'')\n") == []
    assert found("from .stomp import Connection\nConnection()\n") == []


@pytest.mark.parametrize(
    "program",
    [
        "import stomp\nstomp.connect.StompConnection12()",
        "import stomp as s\ns.Connection12()",
        "from stomp import Connection12 as C\nC()",
        "from stomp import *\nConnection12()",
        "import stompy.compat as stomp\nstomp.Connection12()",
        "import stompy.compat\nstompy.compat.Connection12()",
        "from stompy import compat\ncompat.Connection12()",
    ],
)
def test_a_connection_class_is_found_under_each_name(program: str) -> None:
    assert any("stompy.connect(url" in use.text and '"1.2"' in use.text and use.line == 2 for use in found(program))


@pytest.mark.parametrize(
    "program",
    [
        "conn = stomp.Connection()",
        "conn: object = stomp.Connection()",
        "with stomp.Connection() as conn: pass",
        "def make():\n    c = stomp.Connection()\n    return c\nconn = make()",
        "conns = [stomp.Connection()]\nconns.append(stomp.Connection())\nfor conn in conns: pass",
        "def use(conn: stomp.Connection): pass",
        "class Sub(stomp.Connection): pass\nconn = Sub()",
        "class Holder:\n    def __init__(self, conn):\n        pass\nHolder(stomp.Connection())",
        "class Holder:\n    def __init__(self, conn):\n        pass\nHolder(conn=stomp.Connection())",
        "if not conn.is_connected(): pass",
        "(conn := stomp.Connection())",
        "def both(self):\n    self.c = stomp.Connection()\n    conn = self.c",
    ],
)
def test_a_connection_is_followed_to_its_calls(program: str) -> None:
    (call,) = [use for use in found(f"import stomp\n{program}\nconn.send('/queue/a', 'b')") if use.name == "conn.send"]
    assert call.text.startswith("`conn.send(destination, body")
    assert not call.hand


def test_a_subclass_calls_itself_and_has_members_of_its_own() -> None:
    program = """
        import stomp
        class Own(stomp.Connection12):
            def send(self, destination, body):
                self.sent = super().send(destination, body)
            def ping(self):
                self.subscribe("/queue/a", 1)
        conn = Own()
        conn.ping()
        print(conn.sent)
    """
    assert {"super().send", "self.subscribe"} <= advised(program).keys()
    assert hands(program) == []


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("stomp.Conection", "stomp.Conection"),
        ("stomp.utils.frobnicate", "stomp.utils.frobnicate"),
        ("stomp.Connection().frobnicate()", "stomp.Connection().frobnicate"),
        ("stomp.Connection().transport.frobnicate", "transport.frobnicate"),
        ("stomp.Connection()._inner", "stomp.Connection()._inner"),
        ("stomp.Connection().transport._Transport__x", "transport._Transport__x"),
    ],
)
def test_a_name_that_the_adapter_lacks_needs_a_hand(expression: str, name: str) -> None:
    assert [hand.split(": ")[0] for hand in hands(f"import stomp\n{expression}")] == [f"2 {name}"]


def test_an_unknown_name_of_a_from_import_needs_a_hand() -> None:
    assert hands("from stomp import Connection, Frobnicator") == [
        "1 stomp.Frobnicator: not a name of stomp.py 8 or 9; the adapter does not have it"
    ]


def test_private_names_that_programs_use_are_known() -> None:
    program = """
        import stomp
        stomp.logging.__logger.handlers.copy()
        conn = stomp.Connection()
        conn.transport._Transport__host_and_ports[0]
        conn.transport.override_threading(None)
        conn.received_heartbeat
    """
    assert hands(program) == []
    assert "conn.address" in advised(program)["transport._Transport__host_and_ports"]


@pytest.mark.parametrize(
    ("line", "hand"),
    [
        ("conn.connect('a', 'b', wait=True)", None),
        ("conn.connect(username='a', password='b')", "`passcode=` was meant"),
        ("conn.connect(login='a', passcode='b')", "`username=` was meant"),
        ("conn.start()", "remove it"),
        ("conn.stop()", "`disconnect`"),
        ("conn.send('/queue/a')", "needs a destination and a body"),
        ("conn.send(message='x', destination='/queue/a')", "needs a destination and a body"),
        ("conn.send(**everything)", None),
        ("conn.send('/queue/a', 'b', priority=5)", None),
        ("conn.subscribe('/queue/a')", "needs an id"),
        ("conn.subscribe('/queue/a', 1, ack='auto')", None),
        ("conn.subscribe('/queue/a', 1, ack='client')", None),
        ("conn.subscribe('/queue/a', 1, ack='individual')", "unknown"),
        ("conn.begin({'transaction': 'a'})", "not a dict"),
        ("conn.begin('a')", None),
        ("conn.set_ssl([('a', 1)])", "is verified"),
        ("conn.set_ssl([('a', 1)], ca_certs='ca.pem')", None),
        ("conn.set_ssl([('a', 1)], verify=False)", "no protection"),
        ("conn.set_ssl(use_ssl=True, ca_certs='ca.pem')", "no argument of `set_ssl`"),
        ("stomp.Connection(use_ssl=True)", "no argument of stomp.py 8"),
        ("stomp.Connection(heartbeats=(1, 2), reconnect_attempts_max=-1, vhost='/', keepalive=True)", None),
    ],
)
def test_arguments_are_looked_at(line: str, hand: str | None) -> None:
    reported = hands(f"import stomp\nconn = stomp.Connection()\n{line}")
    assert [each for each in reported if (hand or "") in each] == reported
    assert len(reported) == (hand is not None)


def test_keyword_headers_and_headers_with_an_option_are_reported() -> None:
    reported = advised("""
        import stomp
        conn = stomp.Connection(heartbeats=(4000, 4000))
        conn.connect(wait=True, headers={"client-id": "a"})
        conn.subscribe("/topic/a", 1, headers={"activemq.prefetchSize": 1})
        conn.send("/topic/a", "b", colour="red")
    """)
    assert "in seconds" in reported["Connection(heartbeats=)"]
    assert "client_id=" in reported["'client-id'"]
    assert "prefetch=" in reported["'activemq.prefetchSize'"]
    assert '{"colour": ...}' in reported["conn.send(colour=)"]


@pytest.mark.parametrize(
    ("version", "call", "hand"),
    [
        ("11", "conn.ack(headers['message-id'], headers['subscription'])", None),
        ("11", "conn.ack(headers['ack'], 1)", '"ack" header'),
        ("11", "conn.nack(headers['message-id'])", "needs a subscription"),
        ("12", "conn.ack(headers['ack'])", None),
        ("12", "conn.ack(headers.get('message-id'))", 'is the "ack" header'),
        ("12", "conn.nack(headers['ack'], headers['subscription'])", "is a transaction"),
        ("10", "conn.ack(headers['message-id'])", None),
    ],
)
def test_ids_of_acknowledgements_fit_the_version(version: str, call: str, hand: str | None) -> None:
    reported = hands(f"import stomp\nconn = stomp.Connection{version}()\n{call}")
    assert [each for each in reported if (hand or "") in each] == reported
    assert len(reported) == (hand is not None)


@pytest.mark.parametrize(
    ("method", "hand"),
    [
        ("def on_message(self, frame): pass", False),
        ("def on_message(self, headers, body): pass", True),
        ("def on_message(self, *args): pass", False),
        ("def on_message(self, headers, body=None): pass", False),
        ("def on_error(self): pass", True),
        ("def on_disconnected(self): pass", False),
        ("def on_disconnected(self, headers, body): pass", True),
        ("def on_connecting(self, host_and_port): pass", False),
        ("@staticmethod\n    def on_message(frame): pass", False),
        ("async def on_message(self, frame): pass", True),
    ],
)
def test_arguments_of_callbacks_fit(method: str, hand: bool) -> None:
    reported = hands(f"import stomp\nclass Own(stomp.ConnectionListener):\n    {method}")
    assert len(reported) == hand


@pytest.mark.parametrize(
    "program",
    [
        "class Base(stomp.PrintingListener): pass\nclass Own(Base):\n    {}",
        "class Own:\n    {}\nconn = stomp.Connection()\nconn.set_listener('', Own())",
        "class Own:\n    def start(self):\n        self.c.set_listener('', self)\n    {}",
        "class Own(stomp.Connection, stomp.ConnectionListener):\n    {}",
    ],
)
def test_a_listener_is_found_however_it_is_made(program: str) -> None:
    program = "import stomp\n" + program.format("def on_message(self, headers, body): pass")
    assert [hand.split(": ")[0].split(" ")[1] for hand in hands(program)] == ["Own.on_message"]


@pytest.mark.parametrize(
    ("line", "hand"),
    [
        ("stomp.__version__[0] < '5'", False),
        ("stomp.__version__ >= (4, 0)", True),
        ("stomp.__version__ >= OLDEST", True),
        ("stomp.__version__ == '9.0.0'", False),
        ("stomp.__version__[0] >= 5", True),
        ("print(*stomp.__version__)", True),
        ("patch('stomp.Connection')", True),
        ("logging.getLogger('stomp.py')", False),
        ("print('stomp.example.org')", False),
        ("importlib.import_module('stomp')", True),
    ],
)
def test_versions_and_texts_are_looked_at(line: str, hand: bool) -> None:
    assert len(hands(f"import stomp, logging, importlib\n{line}")) == hand


def test_an_import_by_text_alone_is_found() -> None:
    assert len(hands("import importlib\nstomp = importlib.import_module('stomp')")) == 1


def test_uses_come_in_the_order_of_lines_and_each_once() -> None:
    uses = found("import stomp\nconn = stomp.Connection()\nconn.connect(wait=True)\nconn.disconnect()")
    assert uses == sorted(set(uses))
    assert [use.line for use in uses] == [1, 2, 3, 4]
