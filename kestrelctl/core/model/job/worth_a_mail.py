"""Decides which ends of jobs are worth a mail to their owners."""

from __future__ import annotations

#: Whoever submitted a job that took no longer sees its end himself.
SHORT_SECONDS = 60.0


def is_worth_a_mail(outcome: str, *, took_seconds: float, cancelled: bool) -> bool:
    """Whether an owner who has an address is sent word of the end of a job.

    He is if it went wrong or took long; whoever cancels a job knows.

    Args:
        took_seconds: from its submission to its end.
    """
    return not cancelled and (outcome == "failed" or took_seconds > SHORT_SECONDS)
