from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import stompy
from stompy.broker import Broker
from tests.cli.conftest import Run, Start
from tests.support.certificates import Certificates


def address_of(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode().strip()


def test_a_broker_with_tls_asks_for_certificates(start: Start, run: Run, certificates: Certificates) -> None:
    process = start("broker", "--port", "0", "--tls-cert", certificates.server, "--tls-ca", certificates.ca)
    url = address_of(process)
    assert url.startswith("stomp+ssl://127.0.0.1:")
    trusting = ("--url", url, "--tls-ca", certificates.ca)
    assert run("send", "/queue/a", "hello", *trusting, "--tls-cert", certificates.client).code == 0
    found = run("subscribe", "/queue/a", "--count", "1", *trusting, "--tls-cert", certificates.client)
    assert (found.code, found.out) == (0, b"hello\n")
    refused = run("send", "/queue/a", "hello", *trusting, "--tls-cert", certificates.unknown_client)
    assert refused.code == 4
    assert "does not trust the authority of the client certificate" in refused.error


def test_the_environment_may_say_it_all(
    start: Start, run: Run, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = start("broker", "--port", "0", env={"STOMPY_BROKER_TLS_CERT": certificates.server})
    monkeypatch.setenv("STOMPY_URL", address_of(process))
    monkeypatch.setenv("STOMPY_TLS_CA", certificates.ca)
    assert run("ping").code == 0


def test_the_environment_does_not_disturb_who_speaks_plain_text(
    broker: Broker, run: Run, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOMPY_TLS_CA", certificates.ca)
    assert run("ping", "--url", broker.url).code == 0


def test_options_of_tls_with_an_address_without_it_are_a_mistake(
    broker: Broker, run: Run, certificates: Certificates
) -> None:
    result = run("ping", "--url", broker.url, "--tls-ca", certificates.ca)
    assert result.code == 2
    assert "write stomp+ssl:// or wss://" in result.error


def test_an_encrypted_key_is_opened_by_a_file_or_the_environment(
    run: Run, certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "password"
    secret.write_text("hush\n", encoding="utf-8")
    with Broker(tls=certificates.broker_options(ask_clients=True)) as broker:
        ping = ("ping", "--url", broker.url, "--tls-ca", certificates.ca, "--tls-cert", certificates.encrypted("hush"))
        assert run(*ping).code == 2
        assert run(*ping, "--tls-password-file", str(secret)).code == 0
        monkeypatch.setenv("STOMPY_TLS_PASSWORD", "hush")
        assert run(*ping).code == 0
        missing = run(*ping, "--tls-password-file", str(tmp_path / "gone"))
        assert missing.code == 5
        assert "cannot read the password file" in missing.error


def test_another_name_may_be_expected(run: Run, certificates: Certificates) -> None:
    with Broker(tls=stompy.Tls(cert=certificates.of_other_host)) as broker:
        ping = ("ping", "--url", broker.url, "--tls-ca", certificates.ca)
        wrong = run(*ping)
        assert (wrong.code, "is for other.example.org, not for 127.0.0.1" in wrong.error) == (3, True)
        assert run(*ping, "--tls-server-name", "other.example.org").code == 0


def test_taking_any_certificate_is_said_on_standard_error(
    run: Run, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOMPY_TLS_CA", certificates.ca)
    with Broker(tls=stompy.Tls(cert=certificates.self_signed)) as broker:
        result = run("ping", "--url", broker.url, "--tls-insecure-skip-verification")
    assert result.code == 0
    assert (
        "stompy: warning: TLS does not check the broker's certificate: anybody can impersonate the broker\n"
        in result.err
    )


@pytest.mark.parametrize("option", ["--tls-key", "--tls-ca", "--tls-password-file"])
def test_a_broker_needs_a_certificate_with_the_other_options(option: str, run: Run) -> None:
    result = run("broker", "--port", "0", option, "x.pem")
    assert (result.code, result.error) == (2, "TLS needs a certificate: --tls-cert")


def test_a_broker_may_listen_on_a_unix_socket(start: Start, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "s"
    process = start("broker", "--unix", str(path), "--unix-mode", "660")
    url = address_of(process)
    assert url == f"stomp+unix://{path}"
    assert path.stat().st_mode & 0o777 == 0o660
    assert run("ping", "--url", url).code == 0
    process.terminate()
    process.communicate(timeout=20)
    assert not path.exists()
