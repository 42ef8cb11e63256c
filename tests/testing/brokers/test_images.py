"""Which image is taken, and what is removed."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stompy.testing.brokers import images
from tests.testing.brokers.conftest import ToyProduct

docker = pytest.importorskip("docker")


class Container:
    def __init__(self, owner: str | None) -> None:
        self.name = f"of {owner}"
        self.labels = {images.LABEL: "1", **({} if owner is None else {images.OWNER_LABEL: owner})}
        self.removed = False
        self.vanishes = False  # between the list and the inspection

    def remove(self, *, force: bool, v: bool) -> None:
        self.removed = force and v


class Client:
    """What is used of a docker client, over a set of images and one of those that can be pulled."""

    def __init__(self, here: set[str], pullable: set[str], containers: list[Container]) -> None:
        self.here, self.pullable, self.all = here, pullable, containers
        self.images = self.containers = self.api = self
        self.pulled: list[str] = []
        self.pings = 0

    def ping(self) -> None:
        self.pings += 1

    def close(self) -> None: ...

    def get(self, name: str) -> None:
        if name not in self.here:
            raise docker.errors.ImageNotFound(f"no {name} here")

    def pull(self, name: str, *, stream: bool, decode: bool) -> Iterator[dict[str, str]]:
        assert stream
        assert decode
        self.pulled.append(name)
        yield {"status": "pulling"}
        if name not in self.pullable:
            yield {"error": f"{name} is unknown"}

    def list(self, *, all: bool, filters: dict[str, str], ignore_removed: bool = False) -> list[Container]:
        assert all
        assert filters == {"label": images.LABEL}
        if not ignore_removed and any(one.vanishes for one in self.all):
            raise docker.errors.NotFound("No such container")
        return [one for one in self.all if not one.vanishes]


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    made = Client(set(), set(), [])
    monkeypatch.setattr(docker, "from_env", lambda timeout: made)
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")  # no socket of this machine's is looked for
    monkeypatch.delenv(images.PULL_LIMIT_VARIABLE, raising=False)
    forget()
    yield made
    forget()


def forget() -> None:
    for cached in (images.docker_missing, images.prepare, images._first):
        cached.cache_clear()


def test_an_official_image_that_is_here_is_not_pulled(client: Client) -> None:
    client.here.add("toy/former:1")
    client.pullable.add("toy/official:1")
    assert images.official_image(ToyProduct()) == "toy/former:1"
    assert client.pulled == []


def test_an_official_image_is_pulled_once_under_the_first_name_that_works(client: Client) -> None:
    client.pullable.add("toy/former:1")
    assert images.official_image(ToyProduct()) == "toy/former:1"
    assert images.official_image(ToyProduct()) == "toy/former:1"
    assert client.pulled == ["toy/official:1", "toy/former:1"]


def test_every_name_that_failed_is_told(client: Client) -> None:
    with pytest.raises(images.NoImage, match=r"toy/official:1 is unknown.*toy/former:1 is unknown"):
        images.official_image(ToyProduct())


def test_a_pull_is_given_up_in_time(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.pullable.add("toy/official:1")
    monkeypatch.setenv(images.PULL_LIMIT_VARIABLE, "0.0000001")
    with pytest.raises(images.NoImage, match="not pulled within"):
        images.official_image(ToyProduct())


def test_a_pull_may_be_forbidden(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(images.PULL_LIMIT_VARIABLE, "0")
    with pytest.raises(images.NoImage, match="forbids to pull"):
        images.named_image("own:1")
    assert client.pulled == []


def test_the_local_image_is_never_pulled(client: Client) -> None:
    with pytest.raises(images.NoImage, match=r"tools/broker_images\.py builds it"):
        images.local_image(ToyProduct())
    client.here.add("stompy-test/toy:1")
    assert images.local_image(ToyProduct()) == "stompy-test/toy:1"
    assert client.pulled == []


def test_docker_that_does_not_answer_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    forget()
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    assert "docker cannot be reached" in (images.docker_missing() or "")
    forget()


def test_docker_that_is_not_there_leaves_no_socket_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path / 'docker.sock'}")
    gc.collect()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        assert "docker cannot be reached" in (images.docker_missing() or "")
        gc.collect()
    forget()
    assert [str(one.message) for one in caught] == []


def test_the_extra_that_is_not_installed_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    forget()
    monkeypatch.setitem(sys.modules, "docker", None)
    assert "stompy-client[testing] is not installed" in (images.docker_missing() or "")
    forget()


def test_docker_is_asked_once(client: Client) -> None:
    assert (images.docker_missing(), images.docker_missing(), client.pings) == (None, None, 1)


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="processes are identified by /proc")
def test_only_what_dead_processes_of_this_machine_left_is_removed(client: Client, ryuk: Any) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    machine, pid, started = images.owner().split(":")
    kept = [Container(images.owner()), Container(None), Container("elsewhere:1:2"), Container(f"{machine}:x:1")]
    removed = [Container(f"{machine}:{gone.pid}:12"), Container(f"{machine}:{pid}:{int(started) - 1}")]
    client.all = [*kept, *removed]
    images.prepare()
    assert [one.removed for one in kept] == [False] * 4
    assert [one.removed for one in removed] == [True] * 2


def test_a_container_that_another_process_removes_meanwhile_is_ignored(client: Client, ryuk: Any) -> None:
    machine, pid, started = images.owner().split(":")
    vanishing, left = Container(images.owner()), Container(f"{machine}:{pid}:{int(started) - 1}")
    vanishing.vanishes = True
    client.all = [vanishing, left]
    images.prepare()
    assert left.removed


@pytest.fixture
def ryuk(monkeypatch: pytest.MonkeyPatch) -> Any:
    from testcontainers.core.config import testcontainers_config

    monkeypatch.setattr(testcontainers_config, "ryuk_disabled", False)
    return testcontainers_config


def test_ryuk_is_done_without_where_it_cannot_be_pulled(client: Client, ryuk: Any) -> None:
    images.prepare()
    assert ryuk.ryuk_disabled is True


def test_ryuk_stays_on_where_it_can_be_pulled(client: Client, ryuk: Any) -> None:
    client.pullable.add(ryuk.ryuk_image)
    images.prepare()
    assert ryuk.ryuk_disabled is False
