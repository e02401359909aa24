"""How a worker is set up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """The options of `kestrelctl worker run`.

    Attributes:
        pool: the pool's domain; work is taken from `pool@` there and from nobody else.
        credentials: a file with one `JID PASSWORD` a line. With fewer accounts than sessions, the
            sessions share the first account and differ in their resource.
        ca_file: certificates (PEM) of the only authorities to trust; None for the system's.
        sessions: workers that this process is; each has a connection and an aggregate of its own.
        cpus, memory_bytes: of each session; None for an equal share of what the machine has.
        metrics: HOST:PORT for Prometheus; empty for none.
        isolation: how tasks are kept apart: a rung of `core.model.isolation`; `auto` is the best
            that works here.
        shares: directories that tasks may write where their files are isolated.
        executor: `process`, or `inline` to measure scheduling alone.
    """

    pool: str
    credentials: Path
    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 5222
    tls: bool = True
    ca_file: Path | None = None
    sessions: int = 1
    cpus: float | None = None
    memory_bytes: int | None = None
    tags: tuple[str, ...] = ()
    isolation: str = "auto"
    shares: tuple[Path, ...] = ()
    executor: str = "process"
    metrics: str = ""
    log_format: str = "text"
    verbose: bool = False
