"""Definitions of handlers, which say what is done about events, from the text of an INI file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

from kestrelctl.core.ini_sections import IniSection, ini_sections
from kestrelctl.core.membership.event import MembershipEvent, must_be_kind
from kestrelctl.core.model.names import NAME_RULE, is_name, problem_with_mail
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
    """A handler of some events: one of a program, a mail and a request.

    Attributes:
        name: the name of its section.
        events: the events that it is for.
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
        """Whether the handler is for this event."""
        return self.events.takes(event)


def read_handlers(text: str, source: str) -> list[HandlerDefinition]:
    """The handlers that a file defines, a section each.

    Args:
        source: what the text is called in messages: the file.

    Raises:
        UsageError: it defines none, or something that cannot be one.
    """
    return [each.made(_handler) for each in ini_sections(text, source, MOST_HANDLERS)]


def _handler(section: IniSection) -> HandlerDefinition:
    if not is_name(section.name):
        raise section.wrong("this cannot be the name of a handler", NAME_RULE)
    section.only(_KEYS)
    ways = [way for way in _WAYS if section.text(way)]
    if len(ways) != 1:
        raise section.wrong(
            "it is not said what is to be done" if not ways else f"both {' and '.join(ways)}",
            "write one of run, mail and webhook; more of them into more sections",
        )
    if "on" not in section:
        raise section.wrong("it is not said about which events", "write on = failed")
    program = section.words("run")
    if program and not program[0].startswith("/"):
        raise section.wrong(
            f"run = {program[0][:80]!r} says not where the program is",
            "write its whole path: run = /usr/local/bin/tell",
        )
    return HandlerDefinition(
        name=section.name,
        events=EventFilter(section.text("on"), section.text("group")),
        run=program,
        mail=_receiver(section.text("mail")),
        webhook=_address(section.text("webhook")),
        timeout_seconds=section.seconds("timeout", 0.001, LONGEST_SECONDS, USUAL_SECONDS),
    )


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
