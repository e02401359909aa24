"""Answers that pools owe: each pool owes at most one at a time, and only it can give it."""

from __future__ import annotations

from typing import NamedTuple


class _Question(NamedTuple):
    token: int
    asked_at: float
    tries: int


class Awaited:
    """The questions that are not answered yet, the oldest first.

    Args:
        answer_seconds: after this time a question is overdue.
    """

    __slots__ = ("_answer_seconds", "_questions")

    def __init__(self, answer_seconds: float) -> None:
        self._answer_seconds = answer_seconds
        self._questions: dict[str, _Question] = {}

    def expect(self, domain: str, token: int, now: float, tries: int = 1) -> None:
        """Notes that a pool was asked now, for the so-many-th time in a row."""
        self._questions.pop(domain, None)
        self._questions[domain] = _Question(token, now, tries)

    def answered(self, domain: str, token: int) -> float | None:
        """Takes an answer in; returns when it was asked for, None if it was not, or long ago."""
        question = self._questions.get(domain)
        if question is None or question.token != token:
            return None
        del self._questions[domain]
        return question.asked_at

    def forget(self, domain: str) -> None:
        """Expects no answer of a pool any more."""
        self._questions.pop(domain, None)

    def overdue(self, now: float) -> list[tuple[str, int]]:
        """Forgets the questions that have waited too long; returns (pool, tries) of each."""
        found = []
        for domain, question in self._questions.items():
            if question.asked_at + self._answer_seconds > now:
                break
            found.append((domain, question.tries))
        for domain, _ in found:
            del self._questions[domain]
        return found

    def due_at(self) -> float | None:
        """Returns when the next question is overdue; None if there is none."""
        for question in self._questions.values():
            return question.asked_at + self._answer_seconds
        return None

    def __contains__(self, domain: str) -> bool:
        return domain in self._questions
