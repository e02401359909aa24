"""Counts of what became of mails to users."""

from __future__ import annotations

import msgspec


class MailCounts(msgspec.Struct):
    """Tries to hand a mail over, by what came of them, since the manager started.

    Attributes:
        sent: the server has it.
        delayed: it is tried again.
        refused: the server does not take it for this receiver, and never will.
        given_up: mails about jobs that had ended too long ago to try again.
    """

    sent: int = 0
    delayed: int = 0
    refused: int = 0
    given_up: int = 0
