"""A real Chromium, driven over the pipe of its DevTools protocol: no driver to install, nothing but the browser itself."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--hide-scrollbars", "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
    "--mute-audio", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", "--remote-debugging-pipe", "about:blank",
)  # fmt: skip
PATIENCE = 60


def executable() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        assert not os.environ.get("CI"), "in CI nothing that needs Chromium is skipped"
        pytest.skip("no Chromium on this machine")
    return found


class Browser:
    """One page in a headless Chromium with every way out of the machine closed.

    `problems` collects everything that went wrong on the pages: exceptions, console errors and warnings, failed
    requests; `requests` all addresses that were asked for.
    """

    def __init__(self, width: int = 1280, height: int = 900) -> None:
        self.problems: list[str] = []
        self.requests: list[str] = []
        self._number, self._buffer, self._loaded = 0, b"", False
        self._profile = tempfile.mkdtemp(prefix="bench-browser-")
        self._process, self._write, self._read = self._start()
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session: str | None = None
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")
        self.resize(width, height)

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait(PATIENCE)
        for end in (self._read, self._write):
            os.close(end)
        shutil.rmtree(self._profile, ignore_errors=True)

    def resize(self, width: int, height: int = 900) -> None:
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def open(self, address: str) -> None:
        """Goes to a page and waits until it has loaded."""
        for url in ("about:blank", address):  # or a page that differs after # only would not be loaded anew
            self._loaded = False
            if self._call("Page.navigate", url=url).get("loaderId"):
                self._until(lambda: self._loaded, f"{url} did not load")

    def run(self, script: str) -> Any:
        """The value of an expression on the page; promises are awaited."""
        answer = self._call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"].get("exception", {}).get("description") or str(answer))
        return answer["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Waits until an expression is true on the page."""
        deadline = time.monotonic() + PATIENCE
        while not self.run(f"Boolean({condition})"):
            assert time.monotonic() < deadline, f"never true: {condition}"
            time.sleep(0.02)

    def key(self, key: str, code: int = 0) -> None:
        """Presses a key as a person would."""
        text = {"Enter": "\r"}.get(key)
        more = {"text": text} if text else {}
        self._call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, windowsVirtualKeyCode=code, **more)
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=code)

    def type(self, text: str) -> None:
        """Types into what has the focus."""
        self._call("Input.insertText", text=text)

    def follow(self, link: str) -> None:
        """Clicks a link, given as an expression, and waits for the page it leads to."""
        self._loaded = False
        self.run(f"{link}.click()")
        self._until(lambda: self._loaded, f"{link} led nowhere")

    def screenshot(self, path: Path, full: bool = True) -> None:
        shot = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=full)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _start(self) -> tuple[subprocess.Popen[bytes], int, int]:
        """Starts the browser, which reads commands from descriptor 3 and writes answers to descriptor 4."""
        command_read, command_write = os.pipe()
        answer_read, answer_write = os.pipe()

        def in_place() -> None:
            for end, wanted in ((command_read, 3), (answer_write, 4)):
                os.dup2(end, wanted)
                os.set_inheritable(wanted, True)

        process = subprocess.Popen(
            [executable(), f"--user-data-dir={self._profile}", *FLAGS],
            preexec_fn=in_place,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(command_read)
        os.close(answer_write)
        return process, command_write, answer_read

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if getattr(self, "_session", None):
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        answers: list[dict[str, Any]] = []
        self._until(lambda: bool(answers), f"{method} got no answer", answers, self._number)
        if "error" in answers[0]:
            raise AssertionError(f"{method}: {answers[0]['error']}")
        return dict(answers[0]["result"])

    def _until(self, done: Any, complaint: str, answers: list[dict[str, Any]] | None = None, number: int = 0) -> None:
        while not done():
            while b"\0" not in self._buffer:
                assert select.select([self._read], [], [], PATIENCE)[0], f"{complaint} in {PATIENCE} s"
                part = os.read(self._read, 1 << 20)
                assert part, f"{complaint}: the browser is gone"
                self._buffer += part
            raw, self._buffer = self._buffer.split(b"\0", 1)
            message = json.loads(raw)
            if answers is not None and message.get("id") == number:
                answers.append(message)
            else:
                self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        method, details = message.get("method"), message.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(details["request"]["url"])
        elif method == "Network.loadingFailed" and not details.get("canceled"):
            self.problems.append(f"failed request: {details.get('errorText')}")
        elif method == "Runtime.exceptionThrown":
            self.problems.append(str(details["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and details["type"] in ("error", "warning", "assert"):
            self.problems.append(str(details["args"]))
        elif method == "Log.entryAdded" and details["entry"]["level"] in ("error", "warning"):
            self.problems.append(str(details["entry"]))
