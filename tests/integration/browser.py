"""A real browser without a window, told what to do over pipes (Chrome DevTools Protocol)."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

SECONDS = 20.0
#: The browser reads commands from descriptor 3 and writes what it says to descriptor 4.
_ON_PIPES = """
import fcntl, os, sys
commands, answers = (fcntl.fcntl(int(n), fcntl.F_DUPFD, 10) for n in sys.argv[1:3])
os.dup2(commands, 3)
os.dup2(answers, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
_OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
    "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--ignore-certificate-errors", "--remote-debugging-pipe", "--window-size=1200,900",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip


def chromium() -> str:
    """The browser; `./kestrel test` installs it."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    assert found, "no chromium: apt-get install --no-install-recommends chromium"
    return found


class Page:
    """One page.

    Attributes:
        console: what it said there, and errors that nobody caught.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.console: list[str] = []
        self._reader = reader
        self._writer = writer
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._numbers = itertools.count(1)
        self._session = ""

    async def listen(self) -> None:
        """Takes what the browser says, until it ends."""
        try:
            while True:
                said = json.loads((await self._reader.readuntil(b"\0"))[:-1])
                if "id" in said:
                    self._answers.pop(said["id"]).set_result(said)
                elif said["method"] == "Runtime.consoleAPICalled":
                    values = said["params"]["args"]
                    self.console.append(
                        " ".join(str(v.get("value", v.get("description"))) for v in values)
                    )
                elif said["method"] == "Runtime.exceptionThrown":
                    self.console.append(str(said["params"]["exceptionDetails"]))
        except asyncio.IncompleteReadError:
            pass

    async def open(self, url: str) -> None:
        target = await self._tell("Target.createTarget", url="about:blank")
        found = await self._tell("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = found["sessionId"]
        await self._tell("Runtime.enable")
        await self._tell("Page.navigate", url=url)

    async def evaluate(self, script: str) -> Any:
        """What an expression or a promise comes to."""
        found = await self._tell(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def until(self, script: str) -> Any:
        """Waits until an expression is true."""
        try:
            async with asyncio.timeout(SECONDS):
                while not (found := await self.evaluate(script)):
                    await asyncio.sleep(0.1)
        except TimeoutError:
            shown = await self.evaluate("document.body.innerText")
            raise AssertionError(f"{script}\n{shown}\n{self.console[-20:]}") from None
        return found

    async def types(self, selector: str, text: str) -> None:
        """Types into a field."""
        element = f"document.querySelector({json.dumps(selector)})"
        await self.until(f"{element} !== null")
        async with asyncio.timeout(SECONDS):
            # What moves the focus as it appears can get the first of it.
            # And what draws the page anew may take it away for a moment.
            while await self.evaluate(f"{element}?.value") != text:
                await self.evaluate(f"{element}?.focus(), {element}?.select()")
                await self._tell("Input.insertText", text=text)

    async def enters(self, selector: str, text: str) -> None:
        """Types into a field and presses Enter, again if that went elsewhere."""
        await self.types(selector, text)
        field = f"document.querySelector({json.dumps(selector)})"
        enter = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13}
        async with asyncio.timeout(SECONDS):
            while await self.evaluate(f"{field}?.value") == text:
                await self.evaluate(f"{field}?.focus()")
                await self._tell("Input.dispatchKeyEvent", type="keyDown", text="\r", **enter)
                await self._tell("Input.dispatchKeyEvent", type="keyUp", **enter)
                await asyncio.sleep(1)

    async def presses(self, selector: str, key: str, code: int) -> None:
        """Presses a key in a field.

        Args:
            code: of the key, as Windows has it.
        """
        await self.evaluate(f"document.querySelector({json.dumps(selector)}).focus()")
        for kind in ("keyDown", "keyUp"):
            await self._tell(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code
            )

    async def _tell(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._writer.write(json.dumps(message).encode() + b"\0")
        said = await asyncio.wait_for(answer, SECONDS)
        assert "error" not in said, (method, said["error"])
        return said["result"]


@asynccontextmanager
async def browsing(profile: Path) -> AsyncIterator[Page]:
    """A browser for as long as the context lasts, with an empty page."""
    loop = asyncio.get_running_loop()
    commands, to_browser = os.pipe()
    from_browser, answers = os.pipe()
    words = [sys.executable, "-c", _ON_PIPES, str(commands), str(answers), chromium(), *_OPTIONS]
    with (profile.parent / "browser.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *words, f"--user-data-dir={profile}",
            pass_fds=(commands, answers), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    os.close(commands)
    os.close(answers)
    reader = asyncio.StreamReader(limit=64 * 1024 * 1024)
    reading, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(from_browser, "rb")
    )
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(loop), os.fdopen(to_browser, "wb")
    )
    page = Page(reader, asyncio.StreamWriter(transport, protocol, None, loop))
    listening = asyncio.create_task(page.listen())
    try:
        yield page
    finally:
        process.terminate()
        await process.wait()
        await listening  # it ends with the browser
        reading.close()
        transport.close()
