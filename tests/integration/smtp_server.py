"""A small SMTP server on loopback, for tests (RFC 5321): it keeps what it is given."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from types import TracebackType

from listening import listening


class SmtpServer:
    """Takes mail, or answers otherwise to a command.

    Attributes:
        port: where it listens; the same again after a pause.
        mails: (receivers, what was written) of each that it has taken.
        answers: command -> what it answers instead of taking it, such as `RCPT`: `550 no`.
        logins: (user, password) of each that logged in.
        refusals: connections that were sent away at once.
        silent: whether it accepts connections and says nothing.
    """

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self.mails: list[tuple[list[str], bytes]] = []
        self.answers: dict[str, str] = {}
        self.logins: list[tuple[str, str]] = []
        self.refusals = 0
        self.silent = False
        self._listening = contextlib.AsyncExitStack()

    async def __aenter__(self) -> SmtpServer:
        self.port = await self._listening.enter_async_context(listening(self._talk, self.port))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._listening.aclose()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        receivers: list[str] = []

        def say(line: str) -> None:
            writer.write(f"{line}\r\n".encode())

        if not self.silent:
            self.refusals += "" in self.answers
            say(self.answers.get("", "220 here"))
        while line := await reader.readline():
            word, _, rest = line.decode().strip().partition(" ")
            word = word.upper()
            if word in self.answers:
                say(self.answers[word])
            elif word == "EHLO":
                say("250-here")
                say("250 AUTH PLAIN")
            elif word == "AUTH":
                _, user, password = base64.b64decode(rest.split()[1]).decode().split("\0")
                self.logins.append((user, password))
                say("235 welcome")
            elif word == "RCPT":
                receivers.append(rest.partition("<")[2].partition(">")[0])
                say("250 fine")
            elif word == "DATA":
                say("354 go on")
                text = await reader.readuntil(b"\r\n.\r\n")
                say(self.answers.get(".", "250 taken"))
                if "." not in self.answers:
                    self.mails.append((receivers, text[:-3]))
                receivers = []
            elif word == "QUIT":
                say("221 bye")
                break
            else:
                say("250 fine")
