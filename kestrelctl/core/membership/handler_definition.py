"""What is done about events: definitions of handlers, from the text of an INI file."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

from kestrelctl.core.ini_sections import ini_sections
from kestrelctl.core.membership.event import MembershipEvent, must_be_kind
from kestrelctl.core.model.mail_address import problem_with_mail
from kestrelctl.core.model.names import NAME_RULE, is_name
from kestrelctl.errors import UsageError

ANY = "*"


class _Term(NamedTuple):
    kind: str
    group: str


class EventFilter:
    """Kinds of events, each of any worker or of those in a group, as Serf writes them.

    Args:
        text: kinds between commas, each perhaps with a colon and a group; `*` is any kind.
        group: counts for kinds that name none.

    Raises:
        UsageError: it is nothing of the kind.
    """

    def __init__(self, text: str, group: str = "") -> None:
        self.text = text
        self._terms = tuple(_term(word, group) for word in text.split(","))

    def takes(self, event: MembershipEvent) -> bool:
        """Whether the event is one of these."""
        return any(
            term.kind in (ANY, event.kind) and (not term.group or term.group in event.groups)
            for term in self._terms
        )


def _term(word: str, default_group: str) -> _Term:
    kind, colon, group = word.strip().partition(":")
    if colon and not group:
        raise UsageError(
            f"{word.strip()!r} names no group", hint="write failed:gpu, or failed for any worker"
        )
    return _Term(kind if kind == ANY else must_be_kind(kind), group or default_group)


#: How long a handler may take, unless it says otherwise, and at most.
USUAL_SECONDS = 30.0
LONGEST_SECONDS = 3_600.0
MOST_HANDLERS = 100
_WAYS = ("run", "mail", "webhook")
_KEYS = ("on", "group", "timeout", *_WAYS)


@dataclass(frozen=True, kw_only=True)
class HandlerDefinition:
    """What is done about some events: one of a program, a mail and a request.

    Attributes:
        name: of its section.
        events: which.
        run: a program and its arguments; empty for none.
        mail: who is sent a mail; empty for nobody.
        webhook: the http(s) address that is told; empty for none.
        timeout_seconds: how long it may take.
    """

    name: str
    events: EventFilter
    run: tuple[str, ...] = ()
    mail: str = ""
    webhook: str = ""
    timeout_seconds: float = USUAL_SECONDS

    def takes(self, event: MembershipEvent) -> bool:
        """Whether the event is one of its."""
        return self.events.takes(event)


def read_handlers(text: str, source: str) -> list[HandlerDefinition]:
    """The handlers that a file defines, a section each.

    Args:
        source: what the text is called in messages: the file.

    Raises:
        UsageError: it defines none, or something that cannot be one.
    """
    found = []
    for name, fields in ini_sections(text, source, MOST_HANDLERS).items():
        try:
            found.append(_handler(name, fields))
        except UsageError as error:
            raise UsageError(
                f"{source}, section [{name[:80]}]: {error.message}",
                cause=error.cause,
                hint=error.hint,
            ) from None
    return found


def _handler(name: str, said: Mapping[str, str]) -> HandlerDefinition:
    if not is_name(name):
        raise UsageError(
            "this cannot be the name of a handler",
            cause=NAME_RULE,
        )
    for key in said:
        if key not in _KEYS:
            raise UsageError(f"there is no {key[:80]!r}", hint=f"there are {', '.join(_KEYS)}")
    ways = [way for way in _WAYS if said.get(way)]
    if len(ways) != 1:
        raise UsageError(
            "it is not said what is to be done" if not ways else f"both {' and '.join(ways)}",
            hint="write one of run, mail and webhook; more of them into more sections",
        )
    if "on" not in said:
        raise UsageError("it is not said about which events", hint="write on = failed")
    return HandlerDefinition(
        name=name,
        events=EventFilter(said["on"], said.get("group", "").strip()),
        run=_program(said.get("run", "")),
        mail=_receiver(said.get("mail", "").strip()),
        webhook=_address(said.get("webhook", "").strip()),
        timeout_seconds=_seconds(said.get("timeout", str(USUAL_SECONDS))),
    )


def _program(text: str) -> tuple[str, ...]:
    try:
        found = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"run = {text[:80]!r} cannot be read", cause=str(error)) from None
    if found and not found[0].startswith("/"):
        raise UsageError(
            f"run = {found[0][:80]!r} says not where the program is",
            hint="write its whole path: run = /usr/local/bin/tell",
        )
    return found


def _receiver(text: str) -> str:
    if text and (problem := problem_with_mail(text)) is not None:
        raise UsageError("the receiver of a mail is one address", cause=problem)
    return text


def _address(text: str) -> str:
    if not text:
        return ""
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or not text.isascii() or not text.isprintable() or " " in text:
        raise UsageError(
            f"webhook = {text[:80]!r} is no address", hint="write https://example.org/pool"
        )
    return text


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0.0 < found <= LONGEST_SECONDS:
        raise UsageError(
            f"timeout = {text[:80]!r} is no time",
            hint=f"write seconds, up to {LONGEST_SECONDS:,.0f}",
        )
    return found
