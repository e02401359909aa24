"""The environment of a task: a little of the worker's, the job's, and what Kestrel tells it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from kestrelctl.core.agent.agent import LocalAttempt

#: All that a task inherits from the worker.
INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ")

#: A variable of the worker with the names of more, with commas between them.
INHERIT_MORE = "KESTREL_INHERIT"


class Environments:
    """Builds environments; what is the same for all tasks of a job is built once."""

    def __init__(self, worker: str, own: Mapping[str, str] = os.environ) -> None:
        names = (*INHERITED, *own.get(INHERIT_MORE, "").split(","))
        self._base = {name: own[name] for name in names if name in own}
        self._base.setdefault("PATH", os.defpath)
        self._base["KESTREL_WORKER"] = worker
        self._job_id = 0
        self._job: dict[str, str] = {}

    def of(self, attempt: LocalAttempt) -> dict[str, str]:
        """The environment of one task. `docs/cli.md` lists the variables."""
        template = attempt.template
        if template.job_id != self._job_id:
            self._job_id = template.job_id
            self._job = {
                **self._base,
                **template.env,
                "KESTREL_JOB_ID": str(template.job_id),
                "KESTREL_JOB_NAME": template.name,
                "KESTREL_TASK_COUNT": str(template.count),
            }
        env = self._job.copy()
        env["KESTREL_TASK_ID"] = str(template.task_id(attempt.index))
        env["KESTREL_TASK_INDEX"] = str(attempt.index)
        if attempt.item is not None:
            env["KESTREL_ITEM"] = attempt.item
        return env
