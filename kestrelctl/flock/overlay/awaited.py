"""Answers that pools owe: each at most one at a time, and only they can give it."""

from __future__ import annotations

from typing import NamedTuple


class _Question(NamedTuple):
    token: int
    asked_at: float
    tries: int


class Awaited:
    """What was asked and is not answered, the oldest first.

    Args:
        answer_seconds: after this time a question is overdue.
    """

    __slots__ = ("_answer_seconds", "_questions")

    def __init__(self, answer_seconds: float) -> None:
        self._answer_seconds = answer_seconds
        self._questions: dict[str, _Question] = {}

    def expect(self, domain: str, token: int, now: float, tries: int = 1) -> None:
        """A pool was asked now, for the so-many-th time in a row."""
        self._questions.pop(domain, None)
        self._questions[domain] = _Question(token, now, tries)

    def answered(self, domain: str, token: int) -> float | None:
        """When the pool was asked what it answers now; None if it was not, or long ago."""
        question = self._questions.get(domain)
        if question is None or question.token != token:
            return None
        del self._questions[domain]
        return question.asked_at

    def forget(self, domain: str) -> None:
        """Nothing is expected of a pool any more."""
        self._questions.pop(domain, None)

    def overdue(self, now: float) -> list[tuple[str, int]]:
        """(pool, tries) of the questions that have waited too long; they are forgotten."""
        found = []
        for domain, question in self._questions.items():
            if question.asked_at + self._answer_seconds > now:
                break
            found.append((domain, question.tries))
        for domain, _ in found:
            del self._questions[domain]
        return found

    def due_at(self) -> float | None:
        """When the next one is overdue."""
        for question in self._questions.values():
            return question.asked_at + self._answer_seconds
        return None

    def __contains__(self, domain: str) -> bool:
        return domain in self._questions
