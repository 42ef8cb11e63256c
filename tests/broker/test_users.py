"""Users of the broker: their passcodes, hashed or not, what each may do, and what a wrong login costs."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from stompy.broker import Broker, BrokerLimits, User, hash_passcode
from stompy.broker.users import Users, fits, is_allowed
from stompy.deadline import Deadline
from stompy.errors import ConfigurationError
from stompy.secret import Secret
from tests.broker.conftest import Serve
from tests.support.rawclient import RawClient

HASH = "scrypt:16384:8:1:CqOCiuu5uRQ/VfPRf/WhyA==:mh1Ti87l2tizjKUxKMoMuq9Lo8xezOXwz474+hWoM1I="  # of "sesame"


def admitted(users: Users, login: str, passcode: str, deadline: Deadline | None = None) -> bool:
    return users.admit(login, Secret(passcode), deadline or Deadline(20)) is not None


def test_a_hash_has_salt_and_fits_its_passcode_alone() -> None:
    assert hash_passcode("sesame") != HASH
    assert "sesame" not in HASH
    assert fits(Secret("sesame"), HASH)
    assert not fits(Secret("sesamé"), HASH)
    assert not fits(Secret(""), HASH)


@pytest.mark.parametrize(
    "wrong",
    [
        "sesame",
        HASH + "x",
        HASH.replace("scrypt", "md5"),
        HASH.replace("16384", "16383"),
        HASH.replace("16384", "9999999"),
        HASH.replace(":8:", ":99:"),
        HASH.replace("16384:8:1", "65536:16:99"),
        HASH.rsplit(":", 1)[0] + ":QUJD",
        "scrypt:16384:8:1:A:" + HASH.rsplit(":", 1)[1],
    ],
)
def test_a_malformed_hash_is_refused_at_once(wrong: str) -> None:
    with pytest.raises(ConfigurationError, match="passcode hash"):
        User(passcode_hash=wrong)


@pytest.mark.parametrize("given", [{}, {"passcode": "x", "passcode_hash": HASH}])
def test_a_user_has_one_passcode(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="either a passcode or the hash"):
        User(**given)


def test_neither_passcode_nor_hash_is_shown() -> None:
    shown = repr(User(passcode="sesame")) + repr(User(passcode_hash=HASH)) + repr(Users({"ann": "sesame"}))
    assert "sesame" not in shown
    assert "scrypt" not in shown


@pytest.mark.parametrize(
    "user", ["sesame", User(passcode="sesame"), User(passcode=Secret("sesame")), User(passcode_hash=HASH)]
)
def test_the_right_passcode_lets_in_and_no_other(user: User | str) -> None:
    users = Users({"ann": user, "bob": User(passcode_hash=hash_passcode("other"))})
    assert admitted(users, "ann", "sesame")
    for login, passcode in (("ann", "other"), ("ann", ""), ("bob", "sesame"), ("eve", "sesame"), ("", "")):
        assert not admitted(users, login, passcode)


def test_an_unknown_login_takes_as_many_hashes_as_a_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    hashes: list[str] = []

    def noted(passcode: object, known: str) -> bool:
        hashes.append(known)
        return False

    monkeypatch.setattr("stompy.broker.users.fits", noted)
    users = Users({"ann": User(passcode_hash=HASH), "plain": "x"})
    for login in ("ann", "plain", "nobody"):
        admitted(users, login, "wrong")
    assert hashes == [HASH] * 3


def test_only_a_few_hashes_are_made_at_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    started, go_on = threading.Semaphore(0), threading.Event()

    def slow(passcode: object, known: str) -> bool:
        started.release()
        return go_on.wait(20)

    monkeypatch.setattr("stompy.broker.users.fits", slow)
    users = Users({"ann": User(passcode_hash=HASH)})
    threads = [threading.Thread(target=admitted, args=(users, "ann", "x")) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert started.acquire(timeout=20)
    assert not admitted(users, "ann", "sesame", Deadline(0.01))
    go_on.set()
    for thread in threads:
        thread.join(20)
    assert admitted(users, "ann", "sesame")


@pytest.mark.parametrize(
    ("patterns", "allowed", "refused"),
    [
        (("*",), ["/queue/a", "x"], []),
        (("/queue/a",), ["/queue/a"], ["/queue/ab", "/queue", "/queue/a/b", ""]),
        (("/queue/a/*", "/topic/*"), ["/queue/a/", "/queue/a/b", "/topic/x"], ["/queue/a", "/topic"]),
        ((), [], ["/queue/a"]),
    ],
)
def test_a_right_is_a_name_or_a_beginning(patterns: tuple[str, ...], allowed: list[str], refused: list[str]) -> None:
    user = User(passcode="x", read=patterns)
    assert all(is_allowed(user, "read", name) for name in allowed)
    assert not any(is_allowed(user, "read", name) for name in refused)
    assert is_allowed(user, "write", "/queue/a")


@pytest.mark.parametrize("wrong", ["/queue/a", ("a*b",), ("",), (5,), 5])
def test_a_pattern_that_means_nothing_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError):
        User(passcode="x", write=wrong)


# With a broker

RIGHTS = {
    "boss": "sesame",
    "reader": User(passcode="sesame", read=("/queue/a", "/topic/*"), write=(), admin=("*",)),
    "writer": User(passcode="sesame", read=(), write=("/queue/a", "/topic/*"), admin=()),
}


@pytest.mark.parametrize(
    ("login", "command", "destination", "allowed"),
    [
        ("boss", "SEND", "/queue/b", True),
        ("boss", "SUBSCRIBE", "/queue/b", True),
        ("reader", "SUBSCRIBE", "/queue/a", True),
        ("reader", "SUBSCRIBE", "/topic/x", True),
        ("reader", "SUBSCRIBE", "/queue/b", False),
        ("reader", "SEND", "/queue/a", False),
        ("writer", "SEND", "/queue/a", True),
        ("writer", "SEND", "/topic/x", True),
        ("writer", "SEND", "/queue/b", False),
        ("writer", "SUBSCRIBE", "/queue/a", False),
    ],
)
def test_each_may_do_what_it_has_the_right_to(
    serve: Serve, login: str, command: str, destination: str, allowed: bool
) -> None:
    served = serve(users=RIGHTS)
    boss = served.client(login="boss", passcode="sesame")
    boss.send("/queue/a", "so that it exists")
    client = served.client(login=login, passcode="sesame")
    client.say(command, {"destination": destination, "id": "1", "receipt": "r"})
    if allowed:
        assert client.frame().headers.get("receipt-id", "r") == "r"
        return
    right = "read" if command == "SUBSCRIBE" else "write"
    assert client.error().headers["message"] == f"access refused: no right to {right} '{destination}'"
    assert boss.idle()
    assert served.depth("/queue/b") == (0, 0)


def test_a_queue_is_made_by_who_may_administer_it(serve: Serve) -> None:
    served = serve(users=RIGHTS)
    writer = served.client(login="writer", passcode="sesame")
    writer.say("SEND", {"destination": "/queue/a"}, b"x")
    assert "no right to admin '/queue/a'" in writer.error().headers["message"]


def test_a_transaction_is_no_way_around_a_right(serve: Serve) -> None:
    served = serve(users=RIGHTS)
    reader = served.client(login="reader", passcode="sesame")
    reader.say("BEGIN", {"transaction": "t"})
    reader.say("SEND", {"destination": "/queue/a", "transaction": "t"}, b"x")
    assert "no right to write" in reader.error().headers["message"]


def test_a_wrong_login_waits_and_nobody_else_does(serve: Serve) -> None:
    served = serve(users={"ann": "sesame"}, limits=BrokerLimits(login_delay=3600.0))
    for login in ("ann", "nobody"):
        guesser = served.dial()
        guesser.raw(f"CONNECT\naccept-version:1.2\nhost:h\nlogin:{login}\npasscode:wrong\n\n\0".encode())
        assert guesser.recv(0.05) == b""
    friend = served.client(login="ann", passcode="sesame")
    friend.send("/queue/a", "x")
    friend.disconnect()
    served.broker.close()


def test_the_words_and_the_wait_are_the_same_for_a_login_that_does_not_exist(serve: Serve) -> None:
    served = serve(users={"ann": User(passcode_hash=HASH)}, limits=BrokerLimits(login_delay=0.01))

    def refusal(login: str) -> bytes:
        client = served.dial()
        client.raw(f"CONNECT\naccept-version:1.2\nhost:h\nlogin:{login}\npasscode:wrong\n\n\0".encode())
        return b"".join(iter(lambda: client.recv(20.0), b""))

    assert refusal("ann") == refusal("nobody")
    assert b"wrong login or passcode" in refusal("ann")


def test_a_hashed_user_comes_in(serve: Serve) -> None:
    served = serve(users={"ann": User(passcode_hash=HASH)}, limits=BrokerLimits(login_delay=0))
    client: RawClient = served.client(login="ann", passcode="sesame")
    client.disconnect()


def test_who_may_come_in_is_told_loudly_where_others_can_reach_the_broker(caplog: pytest.LogCaptureFixture) -> None:
    with Broker("0.0.0.0"):
        assert "can be reached from other machines" in caplog.text
        assert "everybody there may come in" in caplog.text
    caplog.clear()
    with Broker("0.0.0.0", users={"ann": "sesame"}):
        assert "can be reached from other machines" in caplog.text
        assert "everybody" not in caplog.text
    caplog.clear()
    with Broker():
        assert not [record for record in caplog.records if record.levelname == "WARNING"]
