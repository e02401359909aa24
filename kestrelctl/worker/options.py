"""The options by which a worker is set up."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from kestrelctl.worker.files.output_stage import DEFAULT_LIMIT_BYTES


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """The options of `kestrelctl worker run`.

    Attributes:
        pool: the pool's domain; work is taken from `pool@` there and from nobody else.
        credentials: a file with one `JID PASSWORD` a line. With fewer accounts than sessions, the
            sessions share the first account and differ in their resource.
        ca_file: certificates (PEM) of the only authorities to trust; None for the system's.
        sessions: how many workers this process is; each has a connection and an aggregate of its
            own.
        cpus, memory_bytes: of each session; None for an equal share of what the machine has.
        attributes: what expressions of jobs are to know of it.
        start: an expression that must be true of a job; empty for none.
        assets: what else each session has, or has instead of what is detected, as in
            `grammar.asset_words`: `fpga=2`, `gpus=0,1`.
        metrics: HOST:PORT for Prometheus; empty for none.
        metrics_allow: addresses and networks that may read them, beside this machine.
        pulls: the pool sends no more tasks than the worker asks for.
        isolation: how tasks are kept apart: a rung of `core.model.worker.isolation`; `auto` is the
            best that works here.
        shares: directories that tasks may write where their files are isolated.
        any_workdir: whether jobs may say in which directory of this machine their tasks start: for
            workers whose users are all the one that they run as.
        shared_files: directories below which inputs may be read at `file:` addresses.
        shared_outputs: directories below which owners have directories of their own, to which what
            tasks leave may be written by `file:` address.
        cache_bytes: the most that is kept of the inputs of tasks; None for a part of what is free.
            With 0 it takes no tasks that have inputs.
        lifetime_seconds: how long after its start it leaves; None if it stays.
        outputs_limit_bytes: the most bytes of files that a task leaves and its job asks for.
        environments: kinds of environments that the pool may have made on this machine.
        properties: files with definitions of what is read of this machine, and how often.
        commands: files with definitions of what the pool may have run on this machine.
        executor: `process`, or `inline` to measure scheduling alone.
        poll_bytes: how many bytes answer polls of properties, to measure them; 0 for real answers.
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
    assets: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    attributes: dict[str, bool | int | float | str] = field(default_factory=dict)
    start: str = ""
    pulls: bool = False
    isolation: str = "auto"
    shares: tuple[Path, ...] = ()
    any_workdir: bool = False
    shared_files: tuple[Path, ...] = ()
    shared_outputs: tuple[Path, ...] = ()
    cache_bytes: int | None = None
    lifetime_seconds: float | None = None
    outputs_limit_bytes: int = DEFAULT_LIMIT_BYTES
    environments: tuple[str, ...] = ()
    properties: tuple[Path, ...] = ()
    commands: tuple[Path, ...] = ()
    executor: str = "process"
    poll_bytes: int = 0
    metrics: str = ""
    metrics_allow: tuple[str, ...] = ()
    log_format: str = "text"
    verbose: bool = False
