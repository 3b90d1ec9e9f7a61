"""Debian's Chromium, headless, controlled through the DevTools protocol.

The protocol needs no driver program and no package beyond `websocket-client`, which the Kubernetes client depends on.
"""

import base64
import contextlib
import itertools
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import websocket
from cloudtwin.images.confine import KILLED_WITH_PARENT

from tests.waiting import wait_until

PROGRAM = "chromium"
START_SECONDS = 120.0
REPLY_SECONDS = 120.0
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
DESKTOP = {"width": 1200, "height": 900, "deviceScaleFactor": 1, "mobile": False}


def is_installed() -> bool:
    return shutil.which(PROGRAM) is not None


class Tab:
    """One tab of the browser; `events` are the messages received since the last `open`."""

    def __init__(self, address: str) -> None:
        self._socket = websocket.create_connection(
            address, timeout=REPLY_SECONDS, suppress_origin=True
        )
        self._numbers = itertools.count(1)
        self.events: list[dict[str, Any]] = []
        for domain in ("Page", "Runtime", "Network", "Log", "Accessibility"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **values: object) -> Any:
        """Call a method of the protocol; keep the events that arrive meanwhile."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": values}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") == number:
                assert "error" not in message, f"{method}: {message['error']}"
                return message["result"]
            self.events.append(message)

    def wait_for(self, event: str) -> None:
        """Wait until an event of this name has arrived."""
        while not any(message.get("method") == event for message in self.events):
            self.events.append(json.loads(self._socket.recv()))

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def open(self, page: Path, screen: dict[str, Any] = DESKTOP, **media: str) -> None:
        """Load a page for a screen and media features, such as prefers_color_scheme="dark"."""
        self.call("Emulation.setDeviceMetricsOverride", **screen)
        features = [{"name": n.replace("_", "-"), "value": value} for n, value in media.items()]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.events.clear()
        self.call("Page.navigate", url=page.resolve().as_uri())
        self.wait_for("Page.loadEventFired")

    def run(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        result = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key."""
        codes = {"Tab": 9, "Enter": 13, "ArrowRight": 39, "ArrowLeft": 37, "End": 35, "Home": 36}
        values: dict[str, object] = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        if key == "Enter":
            values["text"] = "\r"
        self.call("Input.dispatchKeyEvent", type="keyDown", **values)
        self.call("Input.dispatchKeyEvent", type="keyUp", **values)

    def screenshot(self, *, full_page: bool = True) -> bytes:
        """Return the page as PNG."""
        response = self.call(
            "Page.captureScreenshot", format="png", captureBeyondViewport=full_page
        )
        return base64.b64decode(response["data"])

    def pdf(self) -> bytes:
        """Return the page as PDF on A4."""
        size = {"paperWidth": 8.27, "paperHeight": 11.69, "preferCSSPageSize": True}
        return base64.b64decode(self.call("Page.printToPDF", printBackground=False, **size)["data"])


@contextlib.contextmanager
def browser() -> Iterator[Tab]:
    """Start the browser with an empty profile and yield its tab; end it and remove the profile afterwards."""
    assert is_installed(), f"{PROGRAM} is not installed: `make browser` installs it"
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        command = [
            *KILLED_WITH_PARENT,
            PROGRAM, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
            "--disable-background-networking", "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank",
        ]  # fmt: skip
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            try:
                with contextlib.closing(Tab(_address(Path(profile), process))) as tab:
                    yield tab
            finally:
                process.terminate()
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()


def _address(profile: Path, process: subprocess.Popen[bytes]) -> str:
    """Return the address of the only tab once the browser listens."""
    port_file = profile / "DevToolsActivePort"

    def find() -> str | None:
        assert process.poll() is None, f"{PROGRAM} has exited with {process.returncode}"
        lines = port_file.read_text().splitlines() if port_file.exists() else []
        return _tab_address(f"ws://127.0.0.1:{lines[0]}{lines[1]}") if len(lines) == 2 else None

    return wait_until(find, f"{PROGRAM} listens", START_SECONDS, interval_seconds=0.05)


def _tab_address(address: str) -> str | None:
    """Return the address of the tab, from the browser's address."""
    with contextlib.closing(
        websocket.create_connection(address, timeout=REPLY_SECONDS, suppress_origin=True)
    ) as connection:
        connection.send(json.dumps({"id": 1, "method": "Target.getTargets"}))
        targets = json.loads(connection.recv())["result"]["targetInfos"]
    pages = [target["targetId"] for target in targets if target["type"] == "page"]
    return address.replace(address.split("/devtools/")[1], f"page/{pages[0]}") if pages else None
