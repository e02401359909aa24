"""A process that can be killed, stopped and continued, and its connection."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from random import Random

from kestrel_worlds.audit import Audit
from kestrel_worlds.loop import Loop
from kestrel_worlds.network import Server
from kestrel_worlds.simulated_session import SimulatedSession
from kestrel_worlds.simulation_clock import SimulationClock
from kestrelctl.clock_and_session import Listener
from kestrelctl.core.pacing.backoff import pause_of_many_seconds

#: A process that is to die in the middle of a turn dies after this time if it has no turn.
DIES_WITHIN_SECONDS = 0.5


class SimulatedProcess(ABC):
    """A name under which processes live and die, and what all of them have in common.

    Args:
        name: its name in the story.
        address: its address at the server.

    Attributes:
        life: the number of the process among those of this name.
        disturbed_at: when something last happened to it.
    """

    def __init__(
        self,
        name: str,
        address: str,
        clock: SimulationClock,
        random: Random,
        server: Server,
        audit: Audit,
    ) -> None:
        self.name = name
        self.address = address
        self.clock = clock
        self.random = random
        self.server = server
        self.audit = audit
        self.life = 0
        self.alive = False
        self.stopped = False
        self.disturbed_at = clock.now
        self.loop: Loop
        self.session: SimulatedSession | None = None
        self._back_after_seconds: float | None = None

    # -- for the kinds of processes ----------------------------------------------------------------

    @abstractmethod
    async def main(self) -> None:
        """Does all that the process does from its start to its end."""

    @abstractmethod
    def on_ended(self) -> None:
        """Is called when the process is gone, and with it all that it had in memory."""

    @abstractmethod
    def said(self, payload: str, to: str) -> None:
        """Is called when the process sends a payload."""

    def repeats(self, payload: str) -> bool:
        """Whether a payload is sent twice."""
        return False

    def pause_seconds(self, failures: int, chance: float) -> float:
        """Returns the pause before the next try to connect."""
        return pause_of_many_seconds(failures, chance)

    def connection(self, listener: Listener) -> SimulatedSession:
        """Makes the session of this process, not started yet."""
        self.session = SimulatedSession(
            self.server,
            self.address,
            listener,
            self.loop,
            self.random,
            self.said,
            lambda: self._tell("loses its connection"),
            repeats=self.repeats,
            pause_seconds=self.pause_seconds,
        )
        return self.session

    # -- life --------------------------------------------------------------------------------------

    @property
    def in_order(self) -> bool:
        """Whether it runs, and is connected."""
        return (
            self.alive
            and not self.stopped
            and self.session is not None
            and self.session.online
            and not self.cut_off
            and self.server.up
        )

    def start(self) -> None:
        """Starts a new process, if there is none."""
        if self.alive:
            return
        self.alive = True
        self.life += 1
        self.session = None
        self._tell("starts", self.life)
        self.loop = Loop(self.clock, self.random, self._on_error)
        self.loop.call_soon(self._begin, self.life)

    def _begin(self, life: int) -> None:
        task = self.loop.create_task(self.main())
        task.add_done_callback(lambda task: self._main_ended(task, life))

    def _main_ended(self, task: asyncio.Task[None], life: int) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._on_error(task.exception())
        self.clock.at(self.clock.now, self._over, life)

    def _over(self, life: int) -> None:
        if self.alive and life == self.life:
            self._tell("has ended")
            self._end(killed=False)

    def _on_error(self, error: BaseException | None) -> None:
        self.audit.expect(False, f"{self.name} fails: {error!r}")

    def start_again(self, after_seconds: float) -> None:
        """Has it started again, this long after its end."""
        self._back_after_seconds = after_seconds
        if not self.alive:
            self._start_later()

    def _start_later(self) -> None:
        if self._back_after_seconds is not None:
            self.clock.after(self._back_after_seconds, self.start)
            self._back_after_seconds = None

    def kill(self) -> None:
        """Ends the process without a word; the kernel closes its connection."""
        if self.alive:
            self._tell("is killed")
            self._end(killed=True)

    def kill_in_a_turn(self, callbacks: int) -> None:
        """Does the same, but in the middle of what the process does next."""
        if self.alive:
            life = self.life
            self.loop.die_after(callbacks, lambda: self._kill_life(life))
            self.clock.after(DIES_WITHIN_SECONDS, self._kill_life, life)

    def _kill_life(self, life: int) -> None:
        if life == self.life:
            self.kill()

    def _end(self, *, killed: bool) -> None:
        self.alive = False
        self.stopped = False
        if self.session is not None:
            self.session.vanish(lossy=killed and self.random.random() < 0.5)
            self.session = None
        self.loop.kill()
        self.on_ended()
        self._start_later()

    def stop(self) -> None:
        """Stops it, as by SIGSTOP: nothing happens inside until it is continued."""
        if self.alive and not self.stopped:
            self._tell("hangs")
            self.stopped = True
            self.loop.stop()

    def go_on(self) -> None:
        """Continues it, as by SIGCONT: what should have happened happens now."""
        if self.stopped:
            self._tell("goes on")
            self.stopped = False
            self.loop.go_on()

    def _tell(self, what: str, *details: object) -> None:
        self.disturbed_at = self.clock.now
        self.clock.tell(self.name, what, *details)

    # -- connection --------------------------------------------------------------------------------

    @property
    def cut_off(self) -> bool:
        """Whether its machine has no network."""
        return self.server.is_cut_off(self.address)

    def drop_connection(self) -> None:
        """Breaks its connection, with what was in flight."""
        if self.session is not None:
            self._tell("has its connection broken")
            self.session.break_off()

    def drop_at_server(self) -> None:
        """Has the server give its connection up, with what was in flight."""
        self._tell("is dropped by the server")
        self.server.drop(self.address, lossy=True)

    def cut(self) -> None:
        """Cuts the machine off: nothing arrives or leaves, nobody is told."""
        if not self.cut_off:
            self._tell("is cut off")
            self.server.cut(self.address, self.session.wire if self.session else None)

    def heal(self) -> None:
        """Makes the machine reachable again."""
        if self.cut_off:
            self._tell("is reachable again")
            self.server.heal(self.address)
