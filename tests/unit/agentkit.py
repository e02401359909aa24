"""An agent, and what it is told."""

from __future__ import annotations

from kestrelctl.core.agent.agent import Agent, LocalAttempt
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.template import Template
from kestrelctl.core.model.result import Outcome, Result

ONE_CPU = {"cpus": 1000}


#: What the machine's clock says, which is not the time that decides.
WALL = 5000.0


def template(job_id: int = 1, **more: object) -> Template:
    return Template(job_id=job_id, program=Program(argv=("true",)), **more)  # type: ignore[arg-type]


def give(
    agent: Agent,
    n: int,
    first: int = 100,
    job: Template | None = None,
    claim: dict[str, int] | None = None,
) -> list[int]:
    """Sends n attempts numbered from `first`; returns those that are refused."""
    job = job or template()
    return agent.on_run(
        [(first, job.job_id, 0, n, 0, 9)], [claim or ONE_CPU], [job], [], [], now=1.0
    )


def started(agent: Agent, now: float = 1.5) -> list[LocalAttempt]:
    """All that fits."""
    return list(iter(lambda: agent.start_next(now), None))


def start(agent: Agent) -> list[int]:
    return [one.number for one in started(agent)]


def end(agent: Agent, number: int, outcome: int = Outcome.DONE, now: float = 2.0) -> Result:
    job_id, index = agent.identity(number)
    return agent.on_completion(Result(number, job_id, index, outcome, 1.5, 0.5), now)
