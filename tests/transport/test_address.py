from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompy.errors import ConfigurationError
from stompy.transport.address import Address, host_port, masked, parse_addresses

SECRET = "s3cr3t"


def parse(url: str) -> Address:
    (address,) = parse_addresses(url)
    return address


def refusal(url: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        parse_addresses(url)
    # Nothing hangs on to the error that a traceback or a report could show instead of it.
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    return str(caught.value)


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("stomp://localhost", "localhost", 61613),
        ("stomp://localhost:1", "localhost", 1),
        ("stomp://localhost:65535", "localhost", 65535),
        ("stomp://localhost:061613", None, None),
        ("STOMP://Broker.Example:7/", "Broker.Example", 7),
        ("stomp://10.0.0.1:61613", "10.0.0.1", 61613),
        ("stomp://[::1]", "::1", 61613),
        ("stomp://[2001:db8::1]:7", "2001:db8::1", 7),
        ("stomp://[fe80::1%25eth0]:7", "fe80::1%eth0", 7),
        ("stomp://user:x@[::1]:7/v", "::1", 7),
        ("stomp://my_host-1.example.:7", "my_host-1.example.", 7),
        ("stomp://bücher.example", "bücher.example", 61613),
    ],
)
def test_host_and_port(url: str, host: str | None, port: int | None) -> None:
    if host is None:
        assert "from 1 to 65535" in refusal(url)
        return
    address = parse(url)
    assert (address.scheme, address.host, address.port) == ("stomp", host, port)
    assert (address.path, address.vhost, address.options) == (
        ("/", None, ()) if url[-1] == "/" else (address.path, address.vhost, ())
    )


@pytest.mark.parametrize(
    ("user_info", "login", "passcode"),
    [
        ("", None, None),
        ("user@", "user", None),
        ("user:@", "user", ""),
        (":pass@", "", "pass"),
        ("@", "", None),
        ("user:p%41ss@", "user", "pAss"),
        ("user:p+ss@", "user", "p+ss"),
        ("us%3Aer:p%40%3A%2F%3F%23%25@", "us:er", "p@:/?#%"),
        ("user:a:b@", "user", "a:b"),
        ("user:a,b@", "user", "a,b"),
        ("user:%C3%A4%e2%82%ac@", "user", "ä€"),
        ("user:ä@", "user", "ä"),
        ("user:%20%09@", "user", " \t"),
        ("user:%2541@", "user", "%41"),
    ],
)
def test_user_info_is_decoded_exactly(user_info: str, login: str | None, passcode: str | None) -> None:
    address = parse(f"stomp://{user_info}host:7")
    assert (address.login, address.passcode, address.host, address.port) == (login, passcode, "host", 7)


@pytest.mark.parametrize(
    ("tail", "path", "vhost"),
    [
        ("", None, None),
        ("/", "/", None),
        ("/v", "/v", "v"),
        ("/%2F", "//", "/"),
        ("//", "//", "/"),
        ("/a/b", "/a/b", "a/b"),
        ("/a+b%20c", "/a+b c", "a+b c"),
        ("/a,b", "/a,b", "a,b"),
        ("/%C3%A4", "/ä", "ä"),
    ],
)
def test_the_path_names_the_virtual_host(tail: str, path: str | None, vhost: str | None) -> None:
    address = parse(f"stomp://h{tail}")
    assert (address.path, address.vhost) == (path, vhost)


@pytest.mark.parametrize(
    ("tail", "options"),
    [
        ("", ()),
        ("?", ()),
        ("?a=1", (("a", "1"),)),
        ("/v?a=1&b=2&a=3", (("a", "1"), ("b", "2"), ("a", "3"))),
        ("?a", (("a", ""),)),
        ("?a=b=c", (("a", "b=c"),)),
        ("?a+b=%26%3D+", (("a+b", "&=+"),)),
        ("?a=/v?w", (("a", "/v?w"),)),
    ],
)
def test_options_are_kept_as_pairs(tail: str, options: tuple[tuple[str, str], ...]) -> None:
    assert parse(f"stomp://h{tail}").options == options


@pytest.mark.parametrize(
    ("given", "hosts"),
    [
        ("stomp://a,stomp://b:2", ["a:61613", "b:2"]),
        ("stomp://u:x,y@a/v,stomp://b", ["a:61613", "b:61613"]),
        (["stomp://a", "stomp://b"], ["a:61613", "b:61613"]),
        (("stomp://a,stomp://b", "stomp://a"), ["a:61613", "b:61613", "a:61613"]),
    ],
)
def test_several_addresses_keep_their_order(given: Any, hosts: list[str]) -> None:
    assert [host_port(address.host, address.port) for address in parse_addresses(given)] == hosts


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("stomp://", "no host name"),
        ("stomp:///vhost", "no host name"),
        ("stomp://:61613", "no host name"),
        (f"stomp://user:{SECRET}@", "no host name"),
        (f"stomp://user:{SECRET}@:61613", "no host name"),
        ("stomp://h:", "from 1 to 65535"),
        ("stomp://h:0", "from 1 to 65535"),
        ("stomp://h:65536", "from 1 to 65535"),
        ("stomp://h:" + "9" * 5000, "from 1 to 65535"),
        ("stomp://h:http", "from 1 to 65535"),
        ("stomp://h:+1", "from 1 to 65535"),
        ("stomp://h:-1", "from 1 to 65535"),
        ("stomp://h:1_0", "from 1 to 65535"),
        ("stomp://h:６１６１３", "from 1 to 65535"),
        ("stomp://h:٣", "from 1 to 65535"),
        ("stomp://h:1:2", "more than one ':'"),
        ("stomp://::1:61613", "written in brackets"),
        ("stomp://[::1", "written in brackets"),
        ("stomp://[::1]7", "written in brackets"),
        ("stomp://[::1]:", "from 1 to 65535"),
        ("stomp://[::1]:x", "from 1 to 65535"),
        ("stomp://[localhost]", "not an IPv6 address"),
        ("stomp://[fe80::1%eth0]", "two hex digits"),
        ("stomp://a..b", "not a valid host name"),
        ("stomp://%6Cocalhost", "not a valid host name"),
        ("stomp://h\\x", "not a valid host name"),
        ("stomp://" + "x" * 64, "not a valid host name"),
        ("stomp://a,b", "written in full each"),
        ("stomp://a:1,b:2", "more than one ':'"),
        ("stomp://a,", "written in full each"),
        (",stomp://a", "empty"),
        ("", "empty"),
        ("stomp:// h", "no spaces or control characters"),
        ("stomp://h ", "no spaces or control characters"),
        ("stomp://a, stomp://b", "no spaces or control characters"),
        ("stomp://h\n", "no spaces or control characters"),
        ("stomp://h\0", "no spaces or control characters"),
        ("stomp://h\x7f", "no spaces or control characters"),
        ("stomp://h\u00a0", "no spaces or control characters"),
        ("stomp://h\u2028", "no spaces or control characters"),
        ("stomp://h\ud800", "no spaces or control characters"),
        (f"stomp://us er:{SECRET}@h", "no spaces or control characters"),
        (f"stomp://user:{SECRET}\n@h", "no spaces or control characters"),
        (f"stomp://user:{SECRET}%0A@h", "passcode of a broker address has a line end"),
        (f"stomp://user:{SECRET}%0d@h", "passcode of a broker address has a line end"),
        (f"stomp://user:{SECRET}%00@h", "passcode of a broker address has a line end or NUL"),
        (f"stomp://us%0Aer:{SECRET}@h", "login of a broker address has a line end"),
        ("stomp://h/a%0Ab", "virtual host of a broker address has a line end"),
        (f"stomp://user:{SECRET}%@h", "passcode of a broker address needs two hex digits"),
        (f"stomp://user:{SECRET}%4@h", "needs two hex digits"),
        (f"stomp://user:{SECRET}%zz@h", "needs two hex digits"),
        (f"stomp://us%er:{SECRET}@h", "'%' in the login"),
        ("stomp://h/%", "'%' in the virtual host"),
        ("stomp://h?a=%", "'%' in the option"),
        (f"stomp://user:{SECRET}%ff@h", "passcode of a broker address is not UTF-8"),
        (f"stomp://user:{SECRET}%ED%A0%80@h", "is not UTF-8"),
        ("stomp://h?%ff=1", "option of a broker address is not UTF-8"),
        (f"stomp://user:{SECRET}@x@h", "'@' in a login or passcode is written %40"),
        (f"stomp://user:{SECRET}/x@h", "a '/' or '?' in a passcode %2F or %3F"),
        (f"stomp://user:123/{SECRET}@h", "a '/' or '?' in a passcode %2F or %3F"),
        (f"stomp://user:{SECRET}?x@h", "a '/' or '?' in a passcode %2F or %3F"),
        (f"stomp://user:{SECRET}#x@h", "no fragment"),
        ("stomp://h#x", "no fragment"),
        ("stomp://h?=1", "has no name"),
        ("stomp://h?a&&b", "has no name"),
        ("stomp:localhost:61613", "two slashes are missing"),
        (f"stomp:user:{SECRET}@h", "two slashes are missing"),
        ("tcp://h:61613", "unknown scheme"),
        (f"http://user:{SECRET}@h", "unknown scheme"),
    ],
)
def test_what_is_wrong_is_named(url: str, message: str) -> None:
    text = refusal(url)
    assert message in text
    assert SECRET not in text
    assert text.isprintable()
    assert SECRET not in url or "***" in text


@pytest.mark.parametrize(
    ("url", "suggestion"),
    [
        ("localhost:61613", "'stomp://localhost:61613'"),
        ("localhost", "'stomp://localhost'"),
        ("//localhost:61613", "'stomp://localhost:61613'"),
        ("stomp:61613", "'stomp://stomp:61613'"),
        (f"user:{SECRET}@localhost:61613", "'stomp://user:***@localhost:61613'"),
        (f"user:{SECRET}", "'stomp://user:***'"),
    ],
)
def test_a_missing_scheme_is_suggested(url: str, suggestion: str) -> None:
    text = refusal(url)
    assert "begins with its scheme; did you mean " + suggestion in text
    assert SECRET not in text


@pytest.mark.parametrize(
    "url",
    [
        "failover:(stomp://a:61613,stomp://b:61613)?randomize=true",
        "failover://(stomp://a:61613,stomp://b:61613)",
    ],
)
def test_a_failover_address_among_others_says_so(url: str) -> None:
    text = refusal(url)
    assert "a failover address has to stand alone" in text
    assert url in text


def test_a_failover_address_among_others_hides_its_passcodes_too() -> None:
    for url in f"failover:(stomp://u:{SECRET}@a,stomp://u:{SECRET}@b)?x=y":
        assert SECRET not in refusal(url)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "no broker address was given"),
        ((), "no broker address was given"),
        (["stomp://a", ""], "empty"),
        (None, "not NoneType"),
        (61613, "not int"),
        (b"stomp://a", "not bytes"),
        (["stomp://a", b"stomp://b"], "not bytes"),
        ({"stomp://a"}, "not set"),
    ],
)
def test_what_is_no_address_at_all_is_refused(given: Any, message: str) -> None:
    assert message in refusal(given)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("stomp://user:x@h:7/v?a=1", "stomp://user:***@h:7/v?a=1"),
        ("stomp://user@h", "stomp://user@h"),
        ("stomp://h:7", "stomp://h:7"),
        ("stomp://[::1]:7", "stomp://[::1]:7"),
        ("stomp://user:secret", "stomp://user:***"),
        ("stomp://user:/secret", "stomp://user:***"),
        ("http://h", "http://h"),
        ("stomp://h?passcode=x&a=1", "stomp://***"),
        ("stomp://h?a=1&Password=x@y", "stomp://***"),
        ("stomp://u:p@h?api_token=x@y", "stomp://***"),
    ],
)
def test_masking_shows_all_but_the_passcode(url: str, shown: str) -> None:
    assert masked(url) == shown


def test_an_address_shows_no_credentials() -> None:
    address = parse(f"stomp://user:{SECRET}@h:7/%2Fv?passcode={SECRET}")
    assert str(address) == "stomp://h:7/%2Fv"
    assert SECRET not in repr(address)
    assert "user" in repr(address)
    assert str(parse("stomp://[::1]/")) == "stomp://[::1]:61613/"


def test_an_address_is_a_value() -> None:
    address = parse("stomp://user:x@h:7/v?a=1")
    assert pickle.loads(pickle.dumps(address)) == address
    assert len({address, parse("stomp://user:x@h:7/v?a=1")}) == 1
    assert address != parse("stomp://user:y@h:7/v?a=1")


@pytest.mark.parametrize("scheme", ["stomp+ssl", "stomps", "STOMPS", "stomp+tls", "stomp+nio+ssl"])
def test_tls_has_several_names_and_a_port_of_its_own(scheme: str) -> None:
    address = parse(f"{scheme}://user:x@h/v")
    assert (address.scheme, address.host, address.port, address.vhost) == ("stomp+ssl", "h", 61614, "v")
    assert str(address) == "stomp+ssl://h:61614/v"
    assert parse(f"{scheme}://h:7").port == 7


def test_the_names_of_activemqs_connectors_are_understood() -> None:
    assert str(parse("stomp+nio://h")) == "stomp://h:61613"


def test_a_unix_socket_has_a_path_and_no_virtual_host() -> None:
    address = parse(f"stomp+unix://us%40er:{SECRET}@/run/my%20broker.sock")
    assert (address.scheme, address.host, address.port) == ("stomp+unix", "", 0)
    assert (address.path, address.vhost) == ("/run/my broker.sock", None)
    assert (address.login, address.passcode) == ("us@er", SECRET)
    assert str(address) == "stomp+unix:///run/my%20broker.sock"
    assert parse(str(address)).path == address.path


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("stomp+unix://host/run/b.sock", "three slashes, and no host"),
        ("stomp+unix://:7/run/b.sock", "three slashes, and no host"),
        ("stomp+unix://", "has no path"),
        ("stomp+unix:///", "has no path"),
        ("stomp+unix:///a%00b", "NUL"),
        ("stomp+unix:///a%zz", "'%' in the path"),
        (f"stomp+unix://user:{SECRET}@", "has no path"),
        (f"stomp+unix://user:{SECRET}", "three slashes, and no host"),
    ],
)
def test_what_is_wrong_with_a_unix_socket_is_named(url: str, message: str) -> None:
    text = refusal(url)
    assert message in text
    assert SECRET not in text


hosts = st.sampled_from(["localhost", "h.example", "10.0.0.1", "[::1]", "[fe80::1%25lo]"])
ports = st.integers(1, 65535)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0"), max_size=20)


def quoted(text: str) -> str:
    """Write every byte as `%XX`."""
    return "".join(f"%{byte:02x}" for byte in text.encode())


@given(host=hosts, port=ports, login=texts, passcode=texts, vhost=texts)
def test_everything_written_encoded_is_read_back(host: str, port: int, login: str, passcode: str, vhost: str) -> None:
    address = parse(f"stomp://{quoted(login)}:{quoted(passcode)}@{host}:{port}/{quoted(vhost)}")
    assert (address.login, address.passcode, address.vhost or "", address.port) == (login, passcode, vhost, port)


@given(host=hosts, port=ports, vhost=texts)
def test_the_text_of_an_address_is_its_url(host: str, port: int, vhost: str) -> None:
    address = parse(f"stomp://{host}:{port}/{quoted(vhost)}")
    assert parse(str(address)) == address


# Characters that show nowhere else in these URLs or in the error messages, and the ones with a meaning in a URL.
passcodes = st.text(st.sampled_from("ŧđøłßþQZ@:/?#%,+&=[]() \n\x1b'\"\\0123456789é\u2028"), min_size=1, max_size=12)
marks = st.sampled_from(["ŧđøł", "ßþQZ"])
tails = st.sampled_from(
    ["@h", "@h:61613/v", "@h:x", "@", "@[::1", "@h?a=1", "@h,b", "@h h", "@a@b", "", "/v", "@h?x=%"]
)
heads = st.sampled_from(
    ["stomp://u:", "stomp://:", "stomp:u:", "u:", "stomps://u:", "http://u:", "stomp://a,stomp://u:"]
)


@given(head=heads, before=passcodes, mark=marks, after=passcodes, tail=tails)
def test_no_error_and_no_text_shows_a_passcode(head: str, before: str, mark: str, after: str, tail: str) -> None:
    # Right or wrong, encoded or not: what stands where the passcode belongs is not shown.
    url = f"{head}{before}{mark}{after}{tail}"
    try:
        addresses = parse_addresses(url)
    except ConfigurationError as error:
        shown = f"{error} {error!r}"
    else:
        shown = " ".join(f"{address} {address!r}" for address in addresses)
    # Where the host is forgotten, what begins like a port is one, and what comes after an '@' is the host.
    if "@" in tail or not (before[0].isdigit() or "@" in before + after):
        assert mark not in shown
