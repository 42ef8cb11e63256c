from __future__ import annotations

import os
from pathlib import Path

import pytest

HOME = Path(os.environ["PUBLISHED_FOLDER"])
(HOME / "etc/panda").mkdir(parents=True, exist_ok=True)
(HOME / "etc/panda/panda_common.cfg").write_text(
    f"[logger]\nlogdir={HOME}\nloghost=localhost\nmonport-apache=1\nmethod=GET\nencoding=url\nmonurlprefix=/\nnemitters=1\nlog_level=DEBUG\nrotating_policy=none\n"
)
os.environ["PANDA_HOME"] = str(HOME)

from pandacommon.test import mb_test  # noqa: E402


def test_its_own_test(capfd: pytest.CaptureFixture[str]) -> None:
    mb_test.main()
    printed = capfd.readouterr().err
    assert "Failed" not in printed
    assert printed.count("OK!") == 10
