"""The environment of a task: a little of the worker's, the job's, and what Kestrel tells it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from kestrelctl.core.agent.agent import LocalAttempt
from kestrelctl.core.agent.unit_variables import unit_variables, variables_without_units
from kestrelctl.core.model.job.template import job_variables, task_variables
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.assets import MILLI
from kestrelctl.core.model.worker.claim import Claim

#: All that a task inherits from the worker.
INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ")

#: A variable of the worker with the names of more, with commas between them.
INHERIT_MORE = "KESTREL_INHERIT"

#: A variable of a worker that an environment boots: directories that the environment consists of,
#: with colons between them.
CONSISTS_OF = "KESTREL_ENVIRONMENT_FILES"


class Environments:
    """Builds environments; what is the same for all tasks of a job is built once."""

    def __init__(
        self, worker: str, own: Mapping[str, str] = os.environ, *, ad: WorkerAd | None = None
    ) -> None:
        names = (*INHERITED, *map(str.strip, own.get(INHERIT_MORE, "").split(",")))
        self._base = {name: own[name] for name in names if name in own}
        self._base.setdefault("PATH", os.defpath)
        self._base["KESTREL_WORKER"] = worker
        self.offer(ad or WorkerAd())
        self._job_id = 0
        self._job: dict[str, str] = {}

    def offer(self, ad: WorkerAd) -> None:
        """Tells tasks of these units from now on, and of no earlier ones any more."""
        self._ad = ad
        self._base |= variables_without_units(ad)
        self._job_id = 0

    def of(self, attempt: LocalAttempt) -> dict[str, str]:
        """The environment of one task. `docs/cli.md` lists the variables."""
        template = attempt.template
        if template.job_id != self._job_id:
            self._job_id = template.job_id
            self._job = self._base | job_variables(template)
        found = self._job | task_variables(
            template, attempt.index, attempt.item, attempt.count, attempt.hosts
        )
        if attempt.claim.units:
            found.update(unit_variables(attempt.claim.units, self._ad))
        return found


def own_directories(own: Mapping[str, str]) -> list[Path]:
    """Directories that tasks must see, wherever they are: those of their worker's environment."""
    return [Path(word) for word in own.get(CONSISTS_OF, "").split(os.pathsep) if word]


def host_lines(hosts: Sequence[str], claim: Claim) -> tuple[str, ...]:
    """The lines of the host file of a job that spans workers.

    A member's line is there once for each whole processor that it has: the list that `mpirun
    --host` of Open MPI takes, which starts a process for each (mpirun(1)).
    """
    times = max(1, claim.amounts.get("cpus", 0) // MILLI)
    return tuple(host for host in hosts for _ in range(times))
