"""The addresses of a pool that people and workers write to."""

from __future__ import annotations

import re
from dataclasses import dataclass

#: Each job has one address: a message to `job-01` would be answered by another one.
_JOB = re.compile(r"job-([1-9][0-9]{0,17})")


@dataclass(frozen=True)
class Addresses:
    """The addresses of one pool.

    Attributes:
        domain: the pool itself.
    """

    domain: str

    @property
    def pool(self) -> str:
        """The address at which workers join."""
        return f"pool@{self.domain}"

    @property
    def jobs(self) -> str:
        """The address at which users ask."""
        return f"jobs@{self.domain}"

    def job(self, job_id: int) -> str:
        """The own address of one job."""
        return f"job-{job_id}@{self.domain}"

    def job_id(self, address: str) -> int | None:
        """Returns the job whose address that is, with or without a resource; None if no job's."""
        name, _, domain = address.partition("/")[0].partition("@")
        match = _JOB.fullmatch(name)
        return int(match[1]) if match and domain == self.domain else None
