"""The part of a session that carries frames between the pool and tasks that run here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kestrelctl.core.agent.agent import Agent
from kestrelctl.protocol import workers
from kestrelctl.protocol.channels import FromTask, ToTask


class WritesToTasks(Protocol):
    """Writes to tasks: `worker.run.task_channels.TaskChannels`."""

    def write(self, number: int, data: bytes) -> bool:
        """Writes a frame to a task; tells whether it has a channel, and room."""
        ...


class SessionChannels:
    """Carries frames of this session's attempts.

    Attributes:
        channels: what writes to tasks; None if no task here has a channel.
    """

    def __init__(self, agent: Agent, send: Callable[[workers.Message], None]) -> None:
        self._agent = agent
        self._send = send
        self.channels: WritesToTasks | None = None

    def on_to_task(self, message: ToTask) -> None:
        """Takes a frame to an attempt, if it is one of this session's."""
        if self.channels is not None and message.number in self._agent.running:
            self.channels.write(message.number, message.data)

    def said(self, number: int, data: bytes) -> None:
        """Tells the pool what an attempt of this session wrote; that is lost while it is away."""
        if self._agent.welcomed and number in self._agent.running:
            job_id, index = self._agent.identity(number)
            self._send(FromTask(number=number, job=job_id, index=index, data=data))
