"""How a manager is set up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kestrelctl.core.model.config import Config


@dataclass(frozen=True, kw_only=True)
class ManagerOptions:
    """The options of `kestrelctl manager run`.

    Attributes:
        domain: the pool's domain, at which the server accepts the component.
        secret_file: holds the component's secret; `-` is standard input.
        tls: whether `port` is one for components over TLS.
        ca_file: certificates (PEM) of the only authorities to trust; None for the system's.
        worker_hosts: domains whose accounts may join as workers, and nothing else.
        user_hosts: domains whose accounts may submit, and nothing else.
        max_account_cpus: what the workers of one account may offer together.
        metrics: HOST:PORT for Prometheus; empty for none.
        share_jobs: whether users see each other's jobs whole, except for output and story.
        admins: users (bare JIDs) who may touch anybody's jobs, and workers.
    """

    domain: str
    secret_file: Path
    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 5347
    tls: bool = False
    ca_file: Path | None = None
    worker_hosts: tuple[str, ...] = ()
    user_hosts: tuple[str, ...] = ()
    admins: tuple[str, ...] = ()
    share_jobs: bool = False
    max_account_cpus: float = Config().max_account_cpus
    metrics: str = ""
    log_format: str = "text"
    verbose: bool = False
