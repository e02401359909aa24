"""The production worker on simulated time: its machine, its spool, its processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from kestrel_worlds.audit import Audit
from kestrel_worlds.network import Server
from kestrel_worlds.simulated_executor import SimulatedExecutor
from kestrel_worlds.simulated_process import SimulatedProcess
from kestrel_worlds.simulated_spool import SimulatedSpool
from kestrel_worlds.simulation_clock import SimulationClock
from kestrel_worlds.truth import Fate, StageFate
from kestrelctl.core.agent.agent import Agent
from kestrelctl.core.model.job.stage import Stage
from kestrelctl.core.model.worker.ad import AssetChange, WorkerAd, changed
from kestrelctl.core.model.worker.assets import GPUS, MILLI, amounts
from kestrelctl.protocol import directions, workers
from kestrelctl.worker.connection.environments import SessionEnvironments
from kestrelctl.worker.process import WorkerProcess
from kestrelctl.worker.run.executor import Completion, Executor

#: The beginning of a report.
_REPORT = '{"type":"report"'


class SimulatedMachine(SimulatedProcess):
    """One machine: worker processes that come and go, a spool that stays, commands that run.

    Args:
        fate: draws the fate of an execution of (kind, index) here.
        stage_fate: draws the fate of a stage of one.
        hidden: how much it really has of assets of unknown capacity.
        pulls: whether the worker is sent no more attempts than it asks for.

    Attributes:
        spool: the results on its disk.
        process: the process of the living worker; None if there is none.
    """

    def __init__(
        self,
        name: str,
        clock: SimulationClock,
        random: Random,
        server: Server,
        audit: Audit,
        ad: WorkerAd,
        fate: Callable[[str, int], Fate],
        stage_fate: Callable[[Stage], StageFate],
        *,
        pulls: bool,
        hidden: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(name, f"{name}@workers.{server.domain}/1", clock, random, server, audit)
        self.spool = SimulatedSpool()
        self.process: WorkerProcess | None = None
        self.repeats_reports = False
        self._ad = ad
        self._fate = fate
        self._stage_fate = stage_fate
        self._pulls = pulls
        self._executor: SimulatedExecutor | None = None
        self._leaving = False
        there = {name: round(n * MILLI) for name, n in (hidden or {}).items()}
        audit.machine(self.address, amounts(ad.assets), ad, there)

    @property
    def agent(self) -> Agent | None:
        """The agent of the living worker, which decides for it; None if there is none."""
        return self.process.sessions[0].agent if self.process is not None else None

    @property
    def settled(self) -> bool:
        """Whether it is in, and has nothing left to do or to say."""
        agent = self.agent
        return agent is not None and agent.welcomed and agent.idle and not self.spool.records

    async def main(self) -> None:
        """Runs a worker, as `worker.daemon.serve` does."""
        process = WorkerProcess(
            f"{self.name}-{self.life}", self.spool, self._make_executor, self.loop, self.random
        )
        process.add_session(
            self.server.domain, self._ad, self.address, self.connection, pulls=self._pulls
        )
        await self.open_environments(process.sessions[0].environments)
        self.process = process
        self.audit.resized(self.address, amounts(self._ad.assets))
        await process.run()
        await self.close_environments()
        await process.close()
        self.audit.expect(process.refused is None, f"{self.name} is refused: {process.refused}")

    async def open_environments(self, session: SessionEnvironments) -> None:
        """Opens what makes environments here: nothing, on most machines."""

    async def close_environments(self) -> None:
        """Closes what makes environments: the worker is about to end in order."""

    def _make_executor(self, on_completion: Callable[[Completion], None]) -> Executor:
        self._executor = SimulatedExecutor(
            self.address,
            self.clock,
            self.random,
            self.audit,
            self._fate,
            self._stage_fate,
            self._ad.unknown,
            self.loop,
            on_completion,
            self._on_stage,
            self._killed_by_a_task,
            self._guest_job,
            lambda number, at: self.process.on_begun(number, at) if self.process else None,
            lambda number: self.process.on_withdrawn(number) if self.process else None,
        )
        return self._executor

    def _guest_job(self, number: int) -> int | None:
        agent = self.agent
        job_id = agent.identity(number)[0] if agent is not None else None
        return job_id if job_id is not None and self.audit.is_guest(job_id) else None

    def _on_stage(self, number: int, name: str) -> None:
        if self.process is not None:
            self.process.on_stage(number, name)

    def _killed_by_a_task(self) -> None:
        self.kill()
        self.start_again(self.random.uniform(0.2, 2.0))

    def on_ended(self) -> None:
        self.process = None
        self._leaving = False
        if self._executor is not None:
            self._executor.vanish()
            self._executor = None

    def resize(self, part: float) -> None:
        """Lets the living worker offer a part of its processors, and of its GPUs the first ones."""
        if self.process is not None:
            self.clock.tell(self.name, f"offers {part:g} of what it has")
            self.loop.call_soon(self._resize, self.process, part)

    def _resize(self, process: WorkerProcess, part: float) -> None:
        if process is not self.process:
            return
        cpus = max(0.001, self._ad.assets["cpus"] * part)
        gpus = float(int(len(self._ad.units.get(GPUS, ())) * part))
        change = AssetChange(amounts={"cpus": cpus} | ({GPUS: gpus} if self._ad.units else {}))
        ad = changed(self._ad, change, self._ad.units)
        self.audit.resized(self.address, amounts(ad.assets))
        process.sessions[0].resize(ad)

    def terminate(self) -> None:
        """Ends it, as by SIGTERM: it finishes what runs, and gives back the rest."""
        if self.process is None:  # there is no handler yet
            self.kill()
        elif not self._leaving:
            self._leaving = True
            self.clock.tell(self.name, "leaves")
            self.loop.call_soon(self.process.on_signal)

    def repeats(self, payload: str) -> bool:
        return self.repeats_reports and payload.startswith(_REPORT)

    def said(self, payload: str, to: str) -> None:
        self.clock.tell(self.name, "says", to, payload)
        if not payload.startswith(_REPORT):
            return
        report = directions.from_worker.decode(payload)
        assert isinstance(report, workers.Report)
        for result in report.results:
            self.audit.kept(result)
            self.audit.expect(
                result.number in self.spool.written,
                f"{result.number} is reported before it is spooled",
            )
