"""A headless Chromium, driven by the DevTools protocol over a pipe."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WITHIN = 20.0
"""Seconds after which what a test waits for has failed."""

_SWITCHES = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-sandbox",  # which a container without user namespaces does not have
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--metrics-recording-only",
    "--hide-scrollbars",
)


def chromium() -> str | None:
    """Return the path of the browser, if it is installed."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """A running browser.

    Args:
        profile: a folder for what it writes.
        switches: further switches of its command line.
    """

    def __init__(self, profile: Path, *switches: str) -> None:
        path = chromium()
        assert path is not None, "chromium is not installed"
        reading, their_writing = os.pipe()
        their_reading, self._writing = os.pipe()
        os.set_blocking(reading, False)
        command = [
            "bash",
            "-c",
            f'exec "$@" 3<&{their_reading} 4>&{their_writing}',
            "bash",
            path,
            *_SWITCHES,
            *switches,
        ]
        self._process = subprocess.Popen(
            [*command, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(their_reading, their_writing),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(their_reading)
        os.close(their_writing)
        self._reading = reading
        self._received = b""
        self._numbers = itertools.count(1)
        self._answers: dict[int, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []
        """What the browser said by itself."""

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Return the result of a command."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        os.write(
            self._writing,
            json.dumps(message if session is None else {**message, "sessionId": session}).encode() + b"\0",
        )
        give_up = time.monotonic() + WITHIN
        while number not in self._answers:
            self._read(give_up)
        answer = self._answers.pop(number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    def _read(self, give_up: float) -> None:
        readable, _, _ = select.select([self._reading], [], [], max(0.0, give_up - time.monotonic()))
        assert readable, "the browser did not answer"
        data = os.read(self._reading, 1 << 20)
        assert data, "the browser has ended"
        *messages, self._received = (self._received + data).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self._answers[message["id"]] = message
            else:
                self.events.append(message)

    def page(self, url: str) -> Page:
        """Return a new page, in a context of its own."""
        own = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=own)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, target, session)
        for domain in ("Page", "Runtime", "Log"):
            page.call(f"{domain}.enable")
        page.go(url)
        return page

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        os.close(self._writing)
        try:
            self._process.wait(WITHIN)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(WITHIN)
        os.close(self._reading)


class Page:
    """A page of a browser."""

    def __init__(self, browser: Browser, target: str, session: str) -> None:
        self._browser = browser
        self._target = target
        self._session = session

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return the result of a command."""
        return self._browser.call(method, self._session, **parameters)

    def go(self, url: str) -> None:
        """Load an address."""
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, script: str) -> Any:
        """Return the value of an expression, of which a promise is waited for."""
        done = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def until(self, script: str) -> None:
        """Wait until an expression is true; one that fails, as an element is not there yet, is not."""
        give_up = time.monotonic() + WITHIN
        while not self.run(f"(() => {{ try {{ return Boolean({script}); }} catch {{ return false; }} }})()"):
            assert time.monotonic() < give_up, f"{script} did not come about; the page says: {self.text()}"
            time.sleep(0.02)

    def text(self) -> str:
        """Return what the page shows."""
        return str(self.run("document.body ? document.body.innerText : ''"))

    def click(self, text: str, *, within: str = "body") -> None:
        """Click on the element whose text begins so, once it is there."""
        elements = f"document.querySelector({json.dumps(within)}).querySelectorAll('button, .view .row, label')"
        wanted = f"one.offsetParent && one.textContent.trim().startsWith({json.dumps(text)})"
        self.until(f"[...{elements}].some((one) => {wanted} && (one.click(), true))")

    def fill(self, field: str, text: str) -> None:
        """Write into a field, given by its selector."""
        self.until(f"Boolean(document.querySelector({json.dumps(field)}))")
        self.run(
            f"(() => {{ const field = document.querySelector({json.dumps(field)}); field.value = {json.dumps(text)};"
            "field.dispatchEvent(new Event('input', { bubbles: true })); })()"
        )

    def press(self, key: str) -> None:
        """Press a key."""
        text = key if len(key) == 1 else "\r" if key == "Enter" else ""
        code = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}.get(
            key, ord(key[0])
        )
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **more)

    def size(self, width: int, height: int, *, mobile: bool = False, scale: float = 1.0) -> None:
        """Set the size of the window."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=mobile
        )

    def faults(self) -> list[str]:
        """Return what has gone wrong in the page: exceptions, and errors that it, or the browser, has logged."""
        found = []
        for event in self._browser.events:
            if event.get("sessionId") != self._session:
                continue
            given = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(given["exceptionDetails"]))
            elif event["method"] == "Log.entryAdded" and given["entry"]["level"] == "error":
                found.append(given["entry"]["text"])
        return found

    def forget_faults(self) -> None:
        """Forget what has gone wrong."""
        self._browser.events.clear()

    def close(self) -> None:
        """Close it."""
        self._browser.call("Target.closeTarget", targetId=self._target)

    def screenshot(self, path: Path) -> None:
        """Write a picture of what is in view."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@contextlib.contextmanager
def browser(profile: Path, *switches: str) -> Iterator[Browser]:
    """Run a browser for the block."""
    started = Browser(profile, *switches)
    try:
        yield started
    finally:
        started.close()
