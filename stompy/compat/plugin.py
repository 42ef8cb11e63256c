"""A plugin of pytest: `pytest -p stompy.compat.plugin` lets `import stomp` find stompy.compat in all tests."""

from __future__ import annotations

from stompy.compat.install import install

install()
