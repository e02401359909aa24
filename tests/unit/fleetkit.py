"""Hosts for tests of the fleet: they answer what they were told to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from kestrelctl.errors import KestrelError, Unreachable
from kestrelctl.fleet.host import Host
from kestrelctl.fleet.shell import Ran, Shell

Answer = str | Ran | KestrelError


def ran(stdout: str = "", *, status: int = 0, stderr: str = "") -> Ran:
    return Ran(status, stdout, stderr, 0.5)


class FakeShell:
    """Answers a command by a part of it; hangs, until it is closed, if that is `None`."""

    def __init__(self, host: Host, answers: Mapping[str, Answer | None]) -> None:
        self.host = host
        self.answers = answers
        self.commands: list[tuple[str, bool, float | None]] = []
        self.closed = threading.Event()

    def run(
        self,
        command: str,
        *,
        as_root: bool = True,
        timeout_seconds: float | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> Ran:
        self.commands.append((command, as_root, timeout_seconds))
        answer = next(text for part, text in self.answers.items() if part in command)
        if answer is None:
            self.closed.wait()
            raise Unreachable(f"the connection to {self.host} broke")
        if isinstance(answer, KestrelError):
            raise answer
        found = ran(answer) if isinstance(answer, str) else answer
        if on_line is None:
            return found
        for line in found.stdout.splitlines():
            on_line(line)
        return Ran(found.status, "", found.stderr, found.seconds)

    def close(self) -> None:
        self.closed.set()


class FakeFleet:
    """Hosts by name; one whose answers are an error cannot be reached."""

    def __init__(self, **answers: Mapping[str, Answer | None] | KestrelError) -> None:
        self.answers = answers
        self.hosts = [Host(name, name) for name in answers]
        self.shells: dict[str, FakeShell] = {}

    def connect(self, host: Host) -> Shell:
        answers = self.answers[host.name]
        if isinstance(answers, KestrelError):
            raise answers
        shell = FakeShell(host, answers)
        self.shells[host.name] = shell
        return shell
