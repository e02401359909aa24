"""`--send-limit`: how much the manager sends in a second."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TypeVar

import click

from kestrelctl.core.pacing.send_limit import SendKind, SendLimit
from kestrelctl.errors import KestrelError, UsageError
from kestrelctl.grammar.quantities import parse_size

F = TypeVar("F", bound=Callable[..., object])

HINT = "write all=10 for 10 messages a second, work=100,1M for 1 MiB a second, too, or all=,200K"


def parse_send_limits(given: tuple[str, ...]) -> dict[SendKind, SendLimit]:
    """Reads limits by kind.

    Args:
        given: `KIND=MESSAGES`, `KIND=MESSAGES,SIZE` or `KIND=,SIZE`, each a second; if there are
            several of one kind, the last one counts.
    """
    return dict(map(_limit, given))


def _limit(text: str) -> tuple[SendKind, SendLimit]:
    kind, _, amounts = text.partition("=")
    messages, _, size = amounts.partition(",")
    try:
        found = SendLimit(
            float(messages) if messages.strip() else inf, parse_size(size) if size.strip() else inf
        )
        limited = SendKind(kind.strip())
    except (ValueError, KestrelError):
        raise UsageError(f"{text!r} is no limit on what is sent", hint=HINT) from None
    if not (found.messages_per_second > 0 and found.bytes_per_second > 0):
        raise UsageError(f"with {text!r} nothing would be sent at all", hint=HINT)
    if found == SendLimit():
        raise UsageError(f"{text!r} limits nothing", hint=HINT)
    return limited, found


def send_limit_option(command: F) -> F:
    """Adds `--send-limit` to a command, parsed as `send_limits`."""
    return click.option(
        "--send-limit",
        "send_limits",
        multiple=True,
        callback=lambda _context, _option, given: parse_send_limits(given),
        metavar="KIND=N[,SIZE]",
        help="Limit what the manager sends to N messages and SIZE bytes a second; KIND is all, "
        "work, flock or answers; repeatable.  [default: no limit]",
    )(command)
