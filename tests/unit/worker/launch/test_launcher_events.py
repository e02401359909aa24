"""What launchers tell: each of it, whatever comes of one."""

from __future__ import annotations

import asyncio
import socket

from kestrelctl.worker.launch import native_launcher
from kestrelctl.worker.launch.launcher import ProgramEnded
from kestrelctl.worker.launch.native_launcher import NativeLauncher
from kestrelctl.worker.launch.python_launcher import PythonLauncher


class BadForOne:
    """Hears of ends, and fails with the first."""

    def __init__(self) -> None:
        self.ended: list[int] = []

    def on_ended(self, ended: ProgramEnded) -> None:
        if ended.number == 1:
            raise ValueError("broken")
        self.ended.append(ended.number)


def failures() -> list[str]:
    """Texts of the errors that reach the event loop from now on."""
    found: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: found.append(str(context["exception"])))
    return found


async def test_an_event_that_fails_keeps_no_other_from_being_told() -> None:
    """A task of whose end nobody hears would run for ever."""
    failed, heard = failures(), BadForOne()
    launcher = object.__new__(PythonLauncher)
    launcher._loop = asyncio.get_running_loop()
    launcher._untold = []

    def ends(number: int) -> None:
        heard.on_ended(ProgramEnded(number, 0, 0.0, 0.0, 0, False))

    for number in (0, 1, 2, 3):
        launcher._tell_soon(lambda number=number: ends(number))  # type: ignore[misc]
    for _ in range(3):
        await asyncio.sleep(0)
    assert heard.ended == [0, 2, 3]
    assert failed == ["broken"]


async def test_nor_does_one_that_another_program_tells() -> None:
    failed, heard = failures(), BadForOne()
    launcher = object.__new__(NativeLauncher)
    loop = launcher._loop = asyncio.get_running_loop()
    launcher._events = heard  # type: ignore[assignment]
    launcher._numbers = {0, 1, 2, 3}
    launcher._received = b""
    launcher._socket, program = socket.socketpair()
    launcher._socket.setblocking(False)
    with launcher._socket, program:
        for number in launcher._numbers:
            program.send(
                native_launcher._ANSWER.pack(b"e", 0, 0, 0, number, 0, 0, 0.0, 0.0, 0.0, 0.0, 0)
            )
        loop.call_soon(launcher.hear)
        for _ in range(3):
            await asyncio.sleep(0)
    assert heard.ended == [0, 2, 3]
    assert failed == ["broken"]
