"""The checkpoints of a session's attempts: what the pool is told of them, and asks for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kestrelctl.core.agent.agent import Agent, LocalAttempt
from kestrelctl.core.model.job.checkpoint import DEFAULT_SECONDS, LEAST_SECONDS, MadeCheckpoint
from kestrelctl.core.model.result import MOST_REASON_CHARACTERS
from kestrelctl.protocol import workers
from kestrelctl.worker.files.checkpoint_order import CheckpointOrder
from kestrelctl.worker.run.executor import Executor


class SessionCheckpoints:
    """Tells the pool of checkpoints, again after each welcome: what was on its way may be lost.

    Args:
        agent: the agent of the attempts.
        executor: of the process; asked each time, because it is made later.
        send: to the pool.
    """

    def __init__(
        self,
        agent: Agent,
        executor: Callable[[], Executor],
        send: Callable[[workers.Message], None],
    ) -> None:
        self._agent = agent
        self._executor = executor
        self._send = send
        #: By attempt that runs, the last message about its checkpoints.
        self._latest: dict[int, workers.StoredCheckpoint] = {}

    def order(self, attempt: LocalAttempt) -> CheckpointOrder:
        """Says what to do about the checkpoints of an attempt that is about to start."""
        template = attempt.template
        return CheckpointOrder(
            template.program.checkpoints,
            max(LEAST_SECONDS, template.program.checkpoint_seconds or DEFAULT_SECONDS),
            template.program.checkpoint_exit,
            attempt.checkpoint,
            partial(self._made, attempt.number),
        )

    def _made(self, number: int, made: MadeCheckpoint | None, problem: str) -> None:
        if number not in self._agent.running:
            return
        told = workers.StoredCheckpoint(
            number=number, made=made, problem=problem[:MOST_REASON_CHARACTERS]
        )
        self._latest[number] = told
        if self._agent.welcomed:
            self._send(told)

    def ended(self, number: int) -> None:
        """Forgets an attempt that is over."""
        self._latest.pop(number, None)

    def on_welcome(self) -> None:
        """Says everything again: the pool may not have heard what was said before."""
        for told in self._latest.values():
            self._send(told)

    def on_take(self, message: workers.TakeCheckpoints) -> None:
        """Stores checkpoints, and stops what goes on elsewhere; what waits here is given back."""
        returned = self._agent.on_recall(message.stop)
        if returned:
            self._send(workers.Returned(numbers=returned))
        stop = set(message.stop)
        for number in dict.fromkeys((*message.numbers, *message.stop)):
            if number in self._agent.running:
                self._executor().take_checkpoint(number, stop=number in stop)
