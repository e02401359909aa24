"""Addresses for mail to users, and the ends of jobs that are worth a mail."""

from __future__ import annotations

import re

#: RFC 5321, 4.5.3.1.3: a path has 256 characters, its angle brackets among them.
MOST_CHARACTERS = 254
#: Whoever submitted a job that took no longer sees its end himself.
SHORT_SECONDS = 60.0

_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#: The addresses that HTML takes in forms: no quotes, comments, spaces, or letters beyond ASCII.
#: https://html.spec.whatwg.org/multipage/input.html#valid-e-mail-address
_ADDRESS = re.compile(rf"[A-Za-z0-9.!#$%&'*+/=?^_`{{|}}~-]{{1,64}}@{_LABEL}(?:\.{_LABEL})*")


def problem_with_mail(address: str) -> str | None:
    """Says what is wrong with an address for mail; None if all is well."""
    if len(address) <= MOST_CHARACTERS and _ADDRESS.fullmatch(address):
        return None
    return f"{address[:80]!r} is no plain address for mail, such as ada@example.org"


def is_worth_a_mail(outcome: str, *, took_seconds: float, cancelled: bool) -> bool:
    """Whether an owner who has an address is sent word of the end of a job.

    He is if it went wrong or took long; whoever cancels a job knows.

    Args:
        took_seconds: from its submission to its end.
    """
    return not cancelled and (outcome == "failed" or took_seconds > SHORT_SECONDS)
