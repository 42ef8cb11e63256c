from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from stompy.errors import ConfigurationError, InsecureTlsWarning
from stompy.transport.tls.options import Tls


def test_it_is_a_value_that_travels() -> None:
    tls = Tls(ca="ca.pem", cert=Path("me.pem"), key="me.key", password="hush", server_name="b.example")
    assert pickle.loads(pickle.dumps(tls)) == tls
    assert hash(tls) == hash(pickle.loads(pickle.dumps(tls)))


def test_the_password_is_not_shown() -> None:
    assert "hush" not in repr(Tls(cert="me.pem", password="hush"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": "me.key"}, "set cert too"),
        ({"ca": b"ca.pem"}, "ca must be text \\(str\\), a path or None, not b'ca.pem'"),
        ({"cert": ""}, "cert must be the path"),
        ({"crl": 3}, "crl must be text .*, not 3"),
        ({"minimum_version": "1.1"}, "'1.2' or '1.3'"),
        ({"maximum_version": "TLSv1.3"}, "'1.2' or '1.3'"),
        ({"minimum_version": "1.3", "maximum_version": "1.2"}, "must not be older"),
        ({"ca": "ca.pem", "insecure_skip_verification": True}, "have no effect with insecure_skip_verification"),
        ({"crl": "crl.pem", "insecure_skip_verification": True}, "have no effect with insecure_skip_verification"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Tls(**options)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("insecure_skip_verification", "does not check the broker's certificate: an attacker in the network can"),
        ("insecure_skip_hostname", "does not check the host in its certificate: an attacker in the network can"),
    ],
)
def test_switching_a_check_off_is_loud(name: str, message: str) -> None:
    with pytest.warns(InsecureTlsWarning, match=message) as caught:
        Tls(**{name: True})  # type: ignore[arg-type]
    assert caught[0].filename == __file__


@pytest.mark.filterwarnings("error")
def test_a_check_that_is_switched_off_travels_without_another_warning() -> None:
    with pytest.warns(InsecureTlsWarning):
        tls = Tls(insecure_skip_verification=True, cert="me.pem", password="hush")
    assert pickle.loads(pickle.dumps(tls)) == tls
