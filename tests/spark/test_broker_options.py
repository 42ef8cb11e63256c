from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from stompy.broker import Broker
from stompy.errors import ConfigurationError, ConnectRefusedError
from stompy.spark.option_tables import SparkBrokerOptions
from stompy.spark.options import parse


def options(**given: str) -> SparkBrokerOptions:
    return parse(SparkBrokerOptions, {"url": "stomp://localhost:1", **given})


def test_a_passcode_in_the_address_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigurationError, match=r"must not contain a passcode.*passcodeEnv") as caught:
        options(url="stomp://me:sesame@localhost")
    assert "sesame" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="must not contain a passcode"):
        options(url="failover:(stomp://a:1,stomp://me:sesame@b:1)")


@pytest.mark.parametrize("name", ["passcode", "PASSCODE", "password", "pass_code"])
def test_a_passcode_is_no_option(name: str) -> None:
    with pytest.raises(ConfigurationError, match="options are pickled") as caught:
        options(**{name: "sesame"})
    assert "sesame" not in str(caught.value)


def test_the_passcode_comes_from_the_environment_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "secret"
    file.write_text("sesame\nanother line\n")
    monkeypatch.setenv("STOMP_SECRET", "sesame too")
    assert options(passcodeFile=str(file)).passcode() == "sesame"
    assert options(passcodeEnv="STOMP_SECRET").passcode() == "sesame too"
    assert options().passcode() is None


def test_a_place_without_a_passcode_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no environment variable 'STOMP_NOWHERE'.*spark\.executorEnv"):
        options(passcodeEnv="STOMP_NOWHERE").passcode()
    with pytest.raises(ConfigurationError, match="No such file"):
        options(passcodeFile=str(tmp_path / "none")).passcode()
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        options(passcodeFile=str(tmp_path / "bytes")).passcode()
    with pytest.raises(ConfigurationError, match="not both"):
        options(passcodeFile="a", passcodeEnv="b")


def test_they_travel_without_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOMP_SECRET", "sesame")
    made = options(passcodeEnv="STOMP_SECRET", url="stomp://me@localhost")
    assert made.passcode() == "sesame"
    assert pickle.loads(pickle.dumps(made)) == made
    assert b"sesame" not in pickle.dumps(made)
    assert "sesame" not in repr(made)


def test_it_connects_with_the_login_and_the_passcode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOMP_SECRET", "sesame")
    with Broker(users={"me": "sesame"}) as broker:
        made = options(url=broker.url.replace("://", "://me@"), passcodeEnv="STOMP_SECRET")
        with made.connect(name="test") as connection:
            assert connection.connected
        monkeypatch.setenv("STOMP_SECRET", "barley")
        with pytest.raises(ConnectRefusedError) as caught:
            made.connect(name="test")
        assert "barley" not in str(caught.value)


def test_tls_is_asked_for_by_files() -> None:
    assert options()._tls() is None
    tls = options(tlsCa="/ca.pem", tlsCert="/me.pem, /me.key")._tls()
    assert tls is not None
    assert (tls.ca, tls.cert, tls.key) == (Path("/ca.pem"), Path("/me.pem"), Path("/me.key"))
    alone = options(tlsCert="/me.pem")._tls()
    assert alone is not None
    assert (alone.ca, alone.cert, alone.key) == (None, Path("/me.pem"), None)
    with pytest.raises(ConfigurationError, match="option tlsCert must be one file, or two"):
        options(tlsCert="/me.pem,/me.key,/ca.pem")


def test_several_addresses_are_tried_in_order() -> None:
    with Broker() as broker, options(url=f"stomp://127.0.0.1:1, {broker.url}").connect(name="test") as connection:
        assert connection.connected


def test_a_passcode_goes_out_with_the_login_of_each_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOMP_SECRET", "sesame")
    with Broker(users={"me": "sesame"}) as broker:
        url = f"failover:(stomp://another@127.0.0.1:1,{broker.url.replace('://', '://me@')})?randomize=false"
        with options(url=url, passcodeEnv="STOMP_SECRET").connect(name="test") as connection:
            assert connection.connected
