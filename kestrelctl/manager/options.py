"""The options of a manager."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kestrelctl.core.model.config import Config
from kestrelctl.core.model.neighbour import RECLAIM_MINUTES
from kestrelctl.core.pacing.send_limit import SendKind, SendLimit
from kestrelctl.manager.mail.server import MailServer

#: Ended jobs are kept for 90 days, and no more than so many.
KEEP_SECONDS = 90 * 86_400.0
KEEP_JOBS = 100_000
#: Events of members are kept for a week.
EVENTS_KEPT_SECONDS = 7 * 86_400.0


@dataclass(frozen=True, kw_only=True)
class ManagerOptions:
    """The options of `kestrelctl manager run`.

    Attributes:
        postgresql: how to connect to the database of the store, without a password; empty for
            SQLite in `data_dir`.
        postgresql_password_file: holds the password of that role; None for none, or one that
            PostgreSQL's own library finds.
        domain: the pool's domain, at which the server accepts the component.
        secret_file: holds the component's secret; `-` is standard input.
        tls: whether `port` is one for components over TLS.
        ca_file: certificates (PEM) of the only authorities to trust; None for the system's.
        worker_hosts: domains whose accounts may join as workers, and nothing else.
        user_hosts: domains whose accounts may submit, and nothing else.
        users: accounts (bare JIDs) of other domains that may submit.
        max_account_cpus: what the workers of one account may offer together.
        usage_seconds: how often workers say what long tasks use; 0 for never.
        usage_half_life_seconds: after this time a user's past use counts half as much against him.
        starving_seconds: after so long without a task handed out, something is kept for a job.
        keep_seconds: how long ended jobs are kept; None for ever.
        keep_jobs: how many ended jobs are kept; None for all.
        events_kept_seconds: how long it is kept what became of workers.
        keep_logs: whether what tasks print goes into the file share, whatever their jobs say.
        max_stored_bytes: how much tasks of a user may have in the file share, unless something else
            is set for him; None for any number.
        files_kept_seconds: how long the share keeps it.
        max_queued_bytes: how large the jobs of an account may be together that have not ended, as
            encoded, unless something else is set for it; None for any size.
        metrics: HOST:PORT for Prometheus; empty for none.
        metrics_allow: addresses and networks that may read them, beside this machine.
        share_jobs: whether users see each other's jobs whole, except for output and story.
        name: what users call the pool in commands; empty for its domain.
        admins: users (bare JIDs) who may touch anybody's jobs, and workers.
        mail: the server that takes mail to users; None for no mail.
        flock: domain of the pool through which this one joins its flock; its own for the first of
            one, empty for none.
        flock_minute_seconds: unit of the intervals in which pools tell each other
            things.
        flock_reclaim_minutes: how long tasks of other pools may go on, in these units, while own
            ones wait for their places.
        flock_fixed: domains of all pools of its flock, if it does not look for them itself.
        flock_any_workdir: whether they may start in any directory.
        send_limits: how much of each kind, and of all, is sent in a second at most.
        environments: files with classes of environments that are started when work needs them.
        property_metrics: names of properties of workers that are among the metrics.
        handlers: files that define what is done about what becomes of workers.
        triggers: files that define what is done when the pool is in some state.
        flock_isolation: the least isolation of tasks of other pools, where no rule says more.
    """

    domain: str
    secret_file: Path
    data_dir: Path
    postgresql: str = ""
    postgresql_password_file: Path | None = None
    host: str = "127.0.0.1"
    port: int = 5347
    tls: bool = False
    ca_file: Path | None = None
    worker_hosts: tuple[str, ...] = ()
    user_hosts: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    admins: tuple[str, ...] = ()
    share_jobs: bool = False
    max_account_cpus: float = Config().max_account_cpus
    usage_seconds: float = Config().usage_seconds
    usage_half_life_seconds: float = Config().usage_half_life_seconds
    starving_seconds: float = Config().starving_seconds
    keep_seconds: float | None = KEEP_SECONDS
    keep_jobs: int | None = KEEP_JOBS
    events_kept_seconds: float = EVENTS_KEPT_SECONDS
    keep_logs: bool = False
    max_stored_bytes: int | None = None
    files_kept_seconds: float = Config().files_kept_seconds
    max_queued_bytes: int | None = Config().max_queued_bytes
    metrics: str = ""
    metrics_allow: tuple[str, ...] = ()
    mail: MailServer | None = None
    flock: str = ""
    flock_minute_seconds: float = 60.0
    flock_reclaim_minutes: float = RECLAIM_MINUTES
    flock_fixed: tuple[str, ...] = ()
    flock_isolation: str = "bubblewrap"
    flock_any_workdir: bool = False
    environments: tuple[Path, ...] = ()
    property_metrics: tuple[str, ...] = ()
    handlers: tuple[Path, ...] = ()
    triggers: tuple[Path, ...] = ()
    send_limits: Mapping[SendKind, SendLimit] = field(default_factory=dict)
    name: str = ""
    log_format: str = "text"
    verbose: bool = False

    def config(self) -> Config:
        """The options on which the pool's decisions depend."""
        return Config(
            max_account_cpus=self.max_account_cpus,
            usage_seconds=self.usage_seconds,
            usage_half_life_seconds=self.usage_half_life_seconds,
            starving_seconds=self.starving_seconds,
            keep_logs=self.keep_logs,
            max_stored_bytes=self.max_stored_bytes,
            files_kept_seconds=self.files_kept_seconds,
            max_queued_bytes=self.max_queued_bytes,
        )
