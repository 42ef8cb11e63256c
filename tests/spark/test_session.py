from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from stompy.errors import ConfigurationError
from stompy.spark import register
from stompy.spark import session as open_session
from stompy.spark.registering import check_packages, check_worker_python
from tests.support.printed import JAVAS_OWN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OF_CONNECT = pytest.mark.skipif(importlib.util.find_spec("grpc") is None, reason="Spark Connect needs grpc")


def program(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def with_python(python: str) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(pythonExec=python))


@pytest.mark.hard_case("T26")
@pytest.mark.parametrize("package", ["pyarrow", "pyspark"])
def test_a_package_that_is_missing_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == package else object())
    with pytest.raises(ConfigurationError, match=rf"the package {package} is missing .*pip install"):
        check_packages()


def test_an_old_spark_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", "3.5.1")
    with pytest.raises(ConfigurationError, match=r"Spark 3\.5\.1 is too old: 4\.1 or newer"):
        check_packages()


@pytest.mark.parametrize("printed", [None, "UnsupportedClassVersionError"])
@pytest.mark.parametrize("place", ["master", pytest.param("remote", marks=OF_CONNECT)])
def test_a_java_that_is_missing_or_too_old_is_reported(tmp_path: Path, place: str, printed: str | None) -> None:
    if printed is not None:
        program(tmp_path / "bin" / "java", f"echo '{printed}' >&2; exit 1")
    opened = f"from stompy.spark import session; session({place}='local[1]')"
    environment = {**os.environ, "JAVA_HOME": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", opened], env=environment, capture_output=True, text=True, timeout=120)
    last = run.stderr.splitlines()[-1]
    assert last.startswith("stompy.errors.ConfigurationError: no Java, or an old one; stderr has what it said.")
    assert last.endswith(f"and set JAVA_HOME to it (now: {tmp_path})")
    assert (printed or "No such file or directory") in run.stderr


@pytest.mark.hard_case("T26")
@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exit 3", "which does not run"),
        ("echo 2.7", "which is Python 2.7; this is"),
        (f"echo {sys.version_info[0]}.{sys.version_info[1]} pyarrow,stompy", "which lacks pyarrow, stompy"),
        (
            f'exec {sys.executable} -I -S "$@"',
            "which lacks pyarrow, pyspark, stompy",
        ),  # a real one, without its packages
    ],
)
def test_a_python_that_cannot_be_a_worker_is_reported(tmp_path: Path, script: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{words}.*Set PYSPARK_PYTHON={sys.executable}"):
        check_worker_python(with_python(program(tmp_path / "python", script)))
    with pytest.raises(ConfigurationError, match="does not run"):
        check_worker_python(with_python(str(tmp_path / "nothing")))


def test_a_python_that_can_be_a_worker_is_asked_once(tmp_path: Path) -> None:
    top = Path(__file__).parent.parent.parent
    python = program(tmp_path / "python", "exit 3")
    with pytest.raises(ConfigurationError):
        check_worker_python(with_python(python))
    program(tmp_path / "python", f'echo >>{tmp_path}/asked; PYTHONPATH={top} exec {sys.executable} "$@"')
    for _ in range(2):
        check_worker_python(with_python(python))
    assert (tmp_path / "asked").read_text() == "\n"


def test_of_a_remote_session_nothing_is_claimed() -> None:
    check_worker_python(SimpleNamespace())  # it has no sparkContext


PACKAGE = Path(__file__).parent.parent.parent / "stompy" / "spark"
LOUD = """
from stompy.spark import session
import sys
place, *settings = sys.argv[1:]
spark = session(**{place: "local[2]"}, **dict(one.split("=") for one in settings))
print(spark.conf.get("spark.sql.streaming.checkpointFileManagerClass", "Spark's default"))
spark.range(10).repartition(4).count()
if settings == ["spark.ui.enabled=false"]:
    spark.range(1).selectExpr("raise_error('it is told')").collect()
"""


def loud(*settings: str, place: str = "master", **environment: str) -> tuple[str, str]:
    """Run a program of a user's; return what writes its checkpoints, and what Spark's Java writes to standard error."""
    top = str(Path(__file__).parent.parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", LOUD, place, *settings],
        env={**os.environ, "PYTHONPATH": top, "SPARK_LOCAL_IP": "127.0.0.1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip(), done.stderr


@pytest.mark.xdist_group("java")
@pytest.mark.timeout(180)
def test_a_local_spark_shows_errors_only_and_starts_no_shell_for_each_file_of_a_checkpoint() -> None:
    manager, log = loud("spark.ui.enabled=false")
    assert manager.endswith(".FileSystemBasedCheckpointFileManager")
    lines = log.splitlines()
    first = next(number for number, line in enumerate(lines) if " ERROR " in line)
    assert [line for line in lines[:first] if not JAVAS_OWN.match(line)] == []
    assert "it is told" in lines[first + 1]


@pytest.mark.xdist_group("java")
@pytest.mark.timeout(180)
@OF_CONNECT
def test_a_local_server_of_spark_connect_is_as_quiet() -> None:
    # SPARK_TESTING has Spark choose a free port.
    manager, log = loud(place="remote", SPARK_TESTING="1")
    assert manager.endswith(".FileSystemBasedCheckpointFileManager")
    assert [line for line in log.splitlines() if not JAVAS_OWN.match(line)] == []


@pytest.mark.long
@pytest.mark.timeout(180)
def test_settings_of_the_users_count(tmp_path: Path) -> None:
    own = (PACKAGE / "log4j2.properties").read_text(encoding="utf-8")
    (tmp_path / "log4j2.properties").write_text(own.replace("%p", "my own %p"))
    theirs = "spark.sql.streaming.checkpointFileManagerClass=theirs"
    manager, log = loud("spark.log.level=INFO", theirs, "spark.ui.enabled=false", SPARK_CONF_DIR=str(tmp_path))
    assert manager == "theirs"
    assert " my own INFO " in log


@pytest.mark.hard_case("T26")
def test_the_package_does_not_import_spark() -> None:
    source = "import sys, stompy.spark; sys.exit('pyspark' in sys.modules or 'pyarrow' in sys.modules)"
    top = str(Path(__file__).parent.parent.parent)
    assert (
        subprocess.run([sys.executable, "-c", source], check=False, env={**os.environ, "PYTHONPATH": top}).returncode
        == 0
    )


def test_registering_makes_the_format_known(spark: SparkSession) -> None:
    register(spark)
    with pytest.raises(Exception, match="option url is missing"):
        spark.read.format("stomp").load()


def test_a_session_of_ours_knows_it(spark: SparkSession) -> None:
    assert open_session("other name") is not None
