"""How a manager is set up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class ManagerOptions:
    """The options of `kestrelctl manager run`.

    Attributes:
        domain: the pool's domain, at which the server accepts the component.
        secret_file: holds the component's secret.
        worker_hosts: domains whose accounts may join as workers, and nothing else.
        user_hosts: domains whose accounts may submit, and nothing else.
        admins: users (bare JIDs) who may touch anybody's jobs, and workers.
    """

    domain: str
    secret_file: Path
    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 5347
    worker_hosts: tuple[str, ...] = ()
    user_hosts: tuple[str, ...] = ()
    admins: tuple[str, ...] = ()
    log_format: str = "text"
    verbose: bool = False
