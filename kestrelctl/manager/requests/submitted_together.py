"""Gathers the answers to jobs that one message submits, and sends them together."""

from __future__ import annotations

from dataclasses import replace

from kestrelctl.manager.caller import Caller
from kestrelctl.protocol import answers as an


class SubmittedTogether:
    """The answers to several submissions, in their order; they go out when all are there.

    Args:
        caller: who has sent them.
        request_id: the id of their message.
        count: how many there are.
    """

    def __init__(self, caller: Caller, request_id: str, count: int) -> None:
        self._caller = caller
        self._id = request_id
        self._answers: dict[int, an.Submitted | an.Failed] = {}
        self._left = count

    def caller_of(self, place: int) -> Caller:
        """Returns who is answered to the submission at a place.

        What he is told besides, such as the end of a job that he watches, he is told at once.
        """

        def reply(answer: an.Reply) -> None:
            if isinstance(answer, an.Submitted | an.Failed):
                self._take(place, answer)
            else:
                self._caller.reply(answer)

        return replace(self._caller, reply=reply)

    def _take(self, place: int, answer: an.Submitted | an.Failed) -> None:
        self._answers[place] = answer
        self._left -= 1
        if self._left == 0:
            found = [self._answers[each] for each in sorted(self._answers)]
            self._answers.clear()  # who watches their jobs is known by this for long
            self._caller.reply(an.SubmittedEach(id=self._id, answers=found))
