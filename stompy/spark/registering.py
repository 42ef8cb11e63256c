"""Making `format("stomp")` available in a Spark session, with clear errors for missing requirements."""

from __future__ import annotations

import functools
import importlib.util
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from stompy.errors import ConfigurationError
from stompy.world import os, subprocess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JAVA_NEEDED = 17
_SPARK_NEEDED = (4, 1)
_PROBE_TIMEOUT = 60.0
"""Seconds for Python to print its version."""
_INSTALL = "pip install 'stompy-client[spark]'"

_CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"
_BY_FILE_SYSTEM = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""As safe as Spark's default, but does not start a shell process for each file of a checkpoint."""
_LOG4J = Path(__file__).with_name("log4j2.properties")
"""Spark's log4j configuration, unless the user has one."""

_PROBE = """\
import importlib.util, sys
missing = [name for name in ("pyarrow", "pyspark", "stompy") if importlib.util.find_spec(name) is None]
print("%d.%d" % sys.version_info[:2], ",".join(missing))
"""


def register(spark: SparkSession) -> None:
    """Make `format("stomp")` available in a session, as a source and a sink.

    Args:
        spark: the session.

    Raises:
        ConfigurationError: Spark, pyarrow or the Python of the workers is missing or too old; the error says what to
            do. Spark itself would only report that there is no data source of that name.
    """
    check_packages()
    check_worker_python(spark)
    from stompy.spark.datasource import StompDataSource

    spark.dataSource.register(StompDataSource)


def session(
    name: str = "stompy", *, master: str | None = None, remote: str | None = None, **settings: str
) -> SparkSession:
    """Return a session with `format("stomp")`: the running one, or a new one.

    A new session logs errors only, and shows no progress bars, unless its server is another process.
    `spark__log__level="WARN"` and `spark__ui__showConsoleProgress="true"` change this; a `log4j2.properties` in
    `SPARK_CONF_DIR` takes precedence. With a local master or server, checkpoints are written by Spark's
    `FileSystemBasedCheckpointFileManager`, which is several times faster on a directory than the default;
    `spark__sql__streaming__checkpointFileManagerClass` sets another one.

    Args:
        name: of the application.
        master: such as `local[2]`; `None` uses that of the environment.
        remote: the address of a Spark Connect server, such as `sc://host`, on which stompy must be installed too; or a
            local master, such as `local[2]`, to start one. `None` uses that of the environment (`SPARK_REMOTE`).
        settings: of Spark, with two underscores for each dot: `spark__sql__shuffle__partitions="2"`.

    Raises:
        ConfigurationError: Java, Spark or pyarrow is missing or too old.
    """
    check_packages()
    server = remote or os.environ.get("SPARK_REMOTE", "")
    if not server or server.startswith("local"):  # a local server runs in a Java of this process, too
        _set_defaults(local=(server or master or "").startswith("local"))
    # By default Spark starts the first `python3` on the path, which often lacks pyarrow.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    given = {"spark.app.name": name, "spark.master": master, "spark.remote": remote}
    given.update((key.replace("__", "."), value) for key, value in settings.items())
    configured = {key: value for key, value in given.items() if value is not None}
    try:
        spark = SparkSession.builder.config(map=configured).getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        home = os.environ.get("JAVA_HOME", "not set")
        raise ConfigurationError(
            f"no Java, or an old one; stderr has what it said. Spark needs Java {_JAVA_NEEDED} or newer: install one "
            f"(Debian: apt install openjdk-{_JAVA_NEEDED}-jre-headless) and set JAVA_HOME to it (now: {home})"
        ) from error
    register(spark)
    return spark


def _set_defaults(*, local: bool) -> None:
    """Set defaults for the Java process that Spark starts; any setting of the user overrides them.

    Args:
        local: whether Spark runs in that process only, so that checkpoints are in a directory, not in HDFS.
    """
    from pyspark.find_spark_home import _find_spark_home

    given = os.environ.get("SPARK_SUBMIT_OPTS", "")
    folder = Path(os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home(), "conf"))
    added = [] if "spark.ui.showConsoleProgress" in given else ["-Dspark.ui.showConsoleProgress=false"]
    if local and _CHECKPOINTS not in given:
        added.append(f"-D{_CHECKPOINTS}={_BY_FILE_SYSTEM}")
    if "log4j" not in given and not any(folder.glob("log4j2*")):
        added.append(f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}")
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join([given, *added]).strip()


def check_packages() -> None:
    """Raise `ConfigurationError` if this Python lacks pyarrow or Spark, or has a Spark that is too old."""
    for package in ("pyarrow", "pyspark"):
        if importlib.util.find_spec(package) is None:
            raise ConfigurationError(f"the package {package} is missing in {sys.executable}: {_INSTALL}")
    import pyspark

    if tuple(map(int, re.findall(r"\d+", pyspark.__version__)[:2])) < _SPARK_NEEDED:
        raise ConfigurationError(
            f"Spark {pyspark.__version__} is too old: 4.1 or newer is needed (4.2 for maxOffsetsPerTrigger by "
            f"Spark's own admission control and for Trigger.AvailableNow): {_INSTALL}"
        )


def check_worker_python(spark: SparkSession) -> None:
    """Raise `ConfigurationError` if the Python that Spark starts for the data source cannot run it.

    A remote session (Spark Connect) is not checked, as it does not reveal its Python.
    """
    try:
        python = spark.sparkContext.pythonExec
    except Exception:  # the error of a remote session
        return
    _check_python(python)


@functools.cache  # so that `register` starts each Python only once
def _check_python(python: str) -> None:
    if (wrong := _unfit(python)) is not None:
        raise ConfigurationError(
            f"Spark would start {python!r} for its workers, which {wrong}. Set PYSPARK_PYTHON={sys.executable} (or the "
            "setting spark.pyspark.python) before the session starts; on a cluster the same must be installed there"
        )


def _unfit(python: str) -> str | None:
    """Return why a Python cannot run the data source; `None` if it can."""
    try:
        found = subprocess.run(
            [python, "-c", _PROBE], capture_output=True, text=True, timeout=_PROBE_TIMEOUT, check=True, cwd=os.sep
        ).stdout.split()
    except (OSError, subprocess.SubprocessError) as error:
        return f"does not run: {error}"
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if found and found[0] != ours:
        return f"is Python {found[0]}; this is {ours}"
    return f"lacks {found[1].replace(',', ', ')}" if len(found) > 1 else None
