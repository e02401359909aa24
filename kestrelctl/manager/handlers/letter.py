"""The mail that tells an admin of events."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from email import policy
from email.message import EmailMessage
from email.utils import format_datetime

from kestrelctl.core.membership.handler_words import ToldEvent
from kestrelctl.core.model.wording import one_line, plural
from kestrelctl.grammar.quantities import short_address
from kestrelctl.manager.mail.letter import command

#: Plain ASCII on the way, whatever workers are called: not every server takes more.
_POLICY = policy.SMTP.clone(cte_type="7bit")
#: The most events that have a line of their own.
MOST_LINES = 1_000


def event_letter(
    told: Sequence[ToldEvent], *, pool: str, sender: str, to: str, now: float
) -> EmailMessage:
    """Makes a mail with a line for each event, the oldest first.

    Sent again with the same events it has the same id, by which programs know it for the same.

    Args:
        told: one or more.
        pool: as its users name it to commands.
        now: seconds since the epoch.
    """
    first, last = told[0], told[-1]
    message = EmailMessage(policy=_POLICY)
    message["From"] = sender
    message["To"] = to
    message["Subject"] = one_line(f"{pool}: {_subject(told)}")
    message["Date"] = format_datetime(datetime.fromtimestamp(now, UTC))
    name = f"event-{first.handler}-{first.number}-{last.number}-{first.at:.0f}"
    message["Message-ID"] = f"<{name}@{sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"  # RFC 3834: nobody's absence answers it
    lines = [_line(each) for each in told[:MOST_LINES]]
    if len(told) > MOST_LINES:
        lines.append(f"and {plural(len(told) - MOST_LINES, 'event')} more")
    since = f"all of them: {command(pool, 'pool events')}"
    message.set_content("\n".join([*lines, "", since]) + "\n")
    return message


def _subject(told: Sequence[ToldEvent]) -> str:
    if len(told) == 1:
        [one] = told
        return f"{one.event} {short_address(one.worker)}"[:200]
    kinds = [each.event for each in told]
    return ", ".join(f"{kinds.count(kind):,} {kind}" for kind in dict.fromkeys(kinds))


def _line(told: ToldEvent) -> str:
    at = datetime.fromtimestamp(told.at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    host = f" on {told.host}" if told.host else ""
    why = f": {told.reason}" if told.reason else ""
    return one_line(f"{at} {told.event} {told.worker}{host}{why}")
