"""A real Chromium for tests, spoken to through its debugging pipe; that needs no package."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")


class Page:
    """One tab; ``errors`` has what it logged as errors, ``requests`` what it asked for."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write, self._buffer, self._number = read, write, b"", 0
        self._session: str | None = None
        self.errors: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._read, 1 << 20)
            if not part:
                raise RuntimeError("Chromium has ended")
            self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(parameters["exceptionDetails"]["exception"]["description"])
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.errors.append(parameters["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"][:200])
        return message

    def open(self, path: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Show a file in a window of this size, and wait until it stands."""
        self.size(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.call("Emulation.setEmulatedMedia", features=[scheme, still])
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait("document.readyState === 'complete'")
        self.evaluate("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")

    def size(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip

    def evaluate(self, expression: str) -> Any:
        result = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"]["exception"]["description"])
        return result["result"].get("value")

    def wait(self, condition: str, seconds: float = 20) -> None:
        deadline = time.monotonic() + seconds
        while not self.evaluate(condition):
            assert time.monotonic() < deadline, f"not within {seconds} s: {condition}"
            self.evaluate("new Promise(r => setTimeout(r, 20))")

    def press(self, key: str) -> None:
        """One key: a letter, or a name such as Tab, Enter, ArrowRight, Escape."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38,
                 "ArrowRight": 39, "ArrowDown": 40}  # fmt: skip
        values: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": codes.get(key, ord(key[0]))}
        if len(key) == 1 or key == "Enter":
            values["text"] = "\r" if key == "Enter" else key
        self.call("Input.dispatchKeyEvent", type="keyDown", **values)
        values.pop("text", None)
        self.call("Input.dispatchKeyEvent", type="keyUp", **values)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """A mouse event: mouseMoved, mousePressed, mouseReleased or mouseWheel."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)

    def screenshot(self, path: Path, *, whole: bool = False) -> Path:
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))
        return path


@contextmanager
def browser() -> Iterator[Page]:
    """A headless Chromium with one tab; it ends with the block."""
    assert CHROMIUM is not None
    to_us, from_chromium = os.pipe()
    to_chromium, from_us = os.pipe()
    with tempfile.TemporaryDirectory() as profile:
        # The pipes must be descriptors 3 (it reads) and 4 (it writes); a shell puts them there.
        line = f'exec "$0" "$@" 3<&{to_chromium} 4>&{from_chromium}'
        process = subprocess.Popen(
            ["bash", "-c", line, CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu",
             "--hide-scrollbars", "--no-first-run", "--disable-dev-shm-usage",
             "--remote-debugging-pipe", f"--user-data-dir={profile}"],
            pass_fds=(to_chromium, from_chromium),
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_chromium)
        os.close(from_chromium)
        try:
            yield Page(to_us, from_us)
        finally:
            os.close(from_us)
            os.close(to_us)
            process.terminate()
            process.wait(timeout=20)
            # Its helpers may write for a moment more.
            shutil.rmtree(profile, ignore_errors=True)
            Path(profile).mkdir(exist_ok=True)
