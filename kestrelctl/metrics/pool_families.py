"""The metrics of a manager: one census of the core, and what is counted around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
from prometheus_client.core import Metric

from kestrelctl.core.census import Census, WorkerNumbers
from kestrelctl.core.counting.histogram import Histogram
from kestrelctl.core.counting.totals import Totals
from kestrelctl.core.model.manager_seen import ManagerSeen
from kestrelctl.core.model.worker.assets import MILLI, natural
from kestrelctl.core.pool import Pool
from kestrelctl.core.properties.summary import PropertySummary
from kestrelctl.core.scheduling.shortage import class_words, shape_words
from kestrelctl.logs import repeats
from kestrelctl.metrics.families import (
    by,
    certificate_family,
    counter,
    counters,
    gauge,
    gauges,
    histogram,
    histograms,
    stanza_families,
    stored_families,
)
from kestrelctl.metrics.flock_families import FlockNumbers, flock_families
from kestrelctl.metrics.labelled_gauges import LabelledGauges, quoted
from kestrelctl.metrics.mail_counts import MailCounts
from kestrelctl.metrics.stanzas import StanzaCounts
from kestrelctl.protocol.workers import Heartbeat, Hello
from kestrelctl.store.port import Statistics

#: Owners with a series of their own, those with the most tasks first; the rest are `other`.
MOST_OWNERS = 50
#: Owners whose share has series of its own, those who run the most first; the rest are `other`.
MOST_SHARES = 20
#: Shapes, and classes, of a shortage with series of their own; the rest are `other`.
MOST_LACKING = 20


class EnvironmentNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """Environments of a class.

    Attributes:
        phases: how many are in each phase.
        waiting: tasks that one could run.
        failing_hosts: the number of hosts at which the latest start failed.
        started, failed: how many have come since the manager's start, and how many starts have
            failed.
    """

    phases: Mapping[str, int]
    waiting: int
    failing_hosts: int
    started: int
    failed: int


class ManagerProcessNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers from around the core at the moment of a scrape.

    Attributes:
        conflicts: how often the server refused this manager because another one was connected.
        certificate: (host, end) of the server's certificate, if the connection has one.
        mails: what became of mails to users.
        flock: the one that the pool is in.
        sends_waiting: by kind, messages that wait for a limit or for room in the connection.
        environments: by class.
        managers: this one, and those that stand by; none if only one can have the store.
        properties: (property, group of workers, what it adds up to) of those that were chosen.
    """

    connected: bool
    store: Statistics
    store_error: str
    commits: Histogram
    certificate: tuple[str, float] | None
    conflicts: int = 0
    mails: MailCounts = msgspec.field(default_factory=MailCounts)
    flock: FlockNumbers = msgspec.field(default_factory=FlockNumbers)
    sends_waiting: Mapping[str, int] = {}
    properties: Sequence[tuple[str, str, PropertySummary]] = ()
    environments: Mapping[str, EnvironmentNumbers] = {}
    managers: Sequence[ManagerSeen] = ()


def leadership_families(managers: Sequence[ManagerSeen], *, leads: bool) -> Iterator[Metric]:
    """The families of a manager that shares its store with others.

    Args:
        managers: as the one that leads sees them; nobody else counts them.
        leads: whether this one does.
    """
    yield gauge("kestrel_leads", "1 of the manager that leads the pool, 0 of others.", leads)
    if leads:
        ready = sum(each.could_lead for each in managers)
        what = "Managers that stand by and could take the pool over."
        yield gauge("kestrel_managers_standing_by", what, ready)


class PoolFamilies:
    """The families of a manager; call it for those of this moment.

    Args:
        pool: whose numbers they are.
        stanzas: what the manager received and sent.
        numbers: asked once for each scrape.
        now: the clock of the pool's events.
    """

    def __init__(
        self,
        pool: Pool,
        stanzas: StanzaCounts,
        numbers: Callable[[], ManagerProcessNumbers],
        now: Callable[[], float],
    ) -> None:
        self._pool = pool
        self._stanzas = stanzas
        self._numbers = numbers
        self._now = now

    def __call__(self) -> Iterator[Metric | LabelledGauges]:
        found = self._pool.census(self._now())
        yield gauge("kestrel_epoch", "Starts of a manager on this store.", self._pool.epoch)
        yield from _jobs(found, self._pool.totals)
        yield from self._shortage()
        yield from _attempts(self._pool.totals)
        yield from stored_families("kestrel_", self._pool.totals.stored)
        yield from _workers(found, self._pool.totals)
        yield from stanza_families("kestrel_", self._stanzas)
        yield from self._ads()
        numbers = self._numbers()
        yield from _surroundings(numbers)
        yield from flock_families(numbers.flock)
        yield from _properties(numbers.properties)
        yield from _environment_families(numbers.environments)
        if numbers.managers:
            yield from leadership_families(numbers.managers, leads=True)

    def _shortage(self) -> Iterator[Metric]:
        found = self._pool.shortage()
        tags = self._pool.known_tags()
        unmet = [((shape_words(shape, tags),), tasks) for shape, tasks in found.unmet.items()]
        yield gauges(
            "kestrel_unmet_tasks",
            f"Waiting tasks that no placement could run now; the {MOST_LACKING} shapes with the "
            "most.",
            ("shape",),
            _largest(unmet),
        )
        saturated = [
            ((class_words(cls), asset), full.workers)
            for cls, full in found.saturated.items()
            for asset in full.assets
        ]
        yield gauges(
            "kestrel_saturated_workers",
            "Workers of a class of which another one would let more of the unmet tasks run.",
            ("worker_class", "asset"),
            _largest(saturated),
        )

    def _ads(self) -> Iterator[Metric]:
        full, heartbeat = self._stanzas.total(Hello), self._stanzas.total(Heartbeat)
        yield counters(
            "kestrel_ads",
            "Advertisements of workers: in full with a hello, renewed by a sign of life.",
            ("kind",),
            by({"full": full[0], "heartbeat": heartbeat[0]}),
        )
        yield counters(
            "kestrel_ad_bytes",
            "Their JSON text, before XML quotes it.",
            ("kind",),
            by({"full": full[1], "heartbeat": heartbeat[1]}),
        )


def _jobs(found: Census, totals: Totals) -> Iterator[Metric]:
    waiting = sum(found.waiting.values())
    jobs = {"active": found.jobs_active, "cancelling": found.jobs_cancelling}
    tasks = {"waiting": waiting, "queued": found.queued, "running": found.running}
    yield gauges("kestrel_jobs", "Jobs that have not ended.", ("state",), by(jobs))
    yield counter("kestrel_jobs_submitted", "Jobs taken in or brought back.", totals.jobs_submitted)
    yield counters(
        "kestrel_jobs_finished", "Jobs that ended.", ("outcome",), by(totals.jobs_finished)
    )
    yield counter(
        "kestrel_jobs_expired",
        "Ended jobs that were forgotten because they had been kept for long enough.",
        totals.jobs_expired,
    )
    yield gauges(
        "kestrel_tasks",
        "Tasks that wait for a worker, wait at one behind others, or run.",
        ("state",),
        by(tasks),
    )
    yield gauges(
        "kestrel_unmatched_tasks",
        "Tasks that wait for a worker, by what holds them back.",
        ("reason",),
        by(found.waiting),
    )
    for name, text, value in (
        ("kestrel_tokens", "Tokens of an asset that the whole pool has.", "total"),
        ("kestrel_tokens_held", "Those of them that attempts hold.", "held"),
    ):
        counted = {each.name: getattr(each, value) for each in found.tokens}
        yield gauges(name, text, ("asset",), by(counted))
    yield gauges(
        "kestrel_owner_tasks",
        f"Tasks of the {MOST_OWNERS} owners with the most, waiting or at a worker.",
        ("owner", "state"),
        _owners(found),
    )
    shares = _shares(found)
    for place, name, text in (
        (0, "kestrel_owner_share_ratio", "Of the pool, the share of each who runs or waits."),
        (1, "kestrel_owner_charged", "What running tasks count for their owner, by their cost."),
    ):
        yield gauges(name, text, ("owner",), [((who,), pair[place]) for who, pair in shares])
    yield counter(
        "kestrel_tasks_submitted", "Tasks taken in or brought back.", totals.tasks_submitted
    )
    yield gauge(
        "kestrel_tasks_restored",
        "Tasks that the manager found unfinished when it started.",
        totals.tasks_restored,
    )
    ended = {
        "done": totals.tasks_done,
        "failed": totals.tasks_failed,
        "lost": totals.tasks_lost,
        "cancelled": totals.tasks_cancelled,
    }
    yield counters("kestrel_tasks_finished", "Tasks that ended.", ("outcome",), by(ended))


def _owners(found: Census) -> list[tuple[Sequence[str], float]]:
    ranked = sorted(found.owners.items(), key=lambda entry: -sum(entry[1]))
    shown = dict(ranked[:MOST_OWNERS])
    rest = [tasks for _, tasks in ranked[MOST_OWNERS:]]
    if rest:
        shown["other"] = (sum(waiting for waiting, _ in rest), sum(held for _, held in rest))
    values: list[tuple[Sequence[str], float]] = []
    for owner, (waiting, held) in shown.items():
        values += [((owner, "waiting"), waiting), ((owner, "running"), held)]
    return values


def _shares(found: Census) -> list[tuple[str, tuple[float, float]]]:
    """(share, charged) of the owners who run the most, and of all others together."""
    ranked = sorted(found.shares.items(), key=lambda entry: (-entry[1][1], -entry[1][0], entry[0]))
    shown, rest = ranked[:MOST_SHARES], [pair for _, pair in ranked[MOST_SHARES:]]
    if rest:
        shown.append(("other", (sum(share for share, _ in rest), sum(c for _, c in rest))))
    return shown


def _largest(
    found: Sequence[tuple[Sequence[str], float]],
) -> list[tuple[Sequence[str], float]]:
    """The largest of these gauges; the rest, together, is `other`. Equal labels are added up."""
    summed: dict[Sequence[str], float] = {}
    for labels, value in found:
        summed[labels] = summed.get(labels, 0) + value
    ranked = sorted(summed.items(), key=lambda entry: -entry[1])
    shown, rest = ranked[:MOST_LACKING], ranked[MOST_LACKING:]
    if rest:
        shown.append((["other"] * len(rest[0][0]), sum(value for _, value in rest)))
    return shown


def _attempts(totals: Totals) -> Iterator[Metric]:
    yield counter("kestrel_attempts", "Attempts handed out.", totals.tasks_sent)
    yield counters(
        "kestrel_retries", "Tasks that got another attempt.", ("reason",), by(totals.retries)
    )
    yield counters(
        "kestrel_losses", "Attempts lost after they had begun.", ("cause",), by(totals.losses)
    )
    yield counter(
        "kestrel_losses_found_again",
        "Lost attempts that turned out to have survived.",
        totals.losses_found_again,
    )
    yield counter(
        "kestrel_attempts_recalled",
        "Attempts given back before they began, for others to run.",
        totals.tasks_recalled,
    )
    yield counter(
        "kestrel_duplicates_refused",
        "Results of attempts that no longer counted.",
        totals.reports_refused,
    )
    yield counter(
        "kestrel_attempts_unproven",
        "Attempts that workers held or reported without having been handed them.",
        totals.attempts_unproven,
    )
    yield counter("kestrel_leases_expired", "Workers that fell silent.", totals.leases_expired)
    yield histogram(
        "kestrel_task_wait_seconds",
        "From a job's submission to the first hand-out of a task.",
        totals.waits,
    )
    yield histogram(
        "kestrel_task_dispatch_seconds",
        "What dispatch adds to a task that succeeds: hand-out to report, less queue and run time.",
        totals.dispatches,
    )
    yield histogram(
        "kestrel_task_run_seconds",
        "Run time of attempts that succeeded or failed.",
        totals.runs,
    )
    yield histograms(
        "kestrel_stage_seconds",
        "Time of the stages of attempts that have ended, of jobs that have stages.",
        "stage",
        totals.stage_seconds,
    )
    yield counters(
        "kestrel_stage_failures",
        "Attempts of such jobs that failed, by the stage that did.",
        ("stage",),
        by(totals.stage_failures),
    )
    yield gauge(
        "kestrel_last_dispatch_timestamp_seconds",
        "When tasks were last handed out.",
        totals.last_dispatch_at,
    )


def _workers(found: Census, totals: Totals) -> Iterator[Metric | LabelledGauges]:
    yield gauges(
        "kestrel_workers", "Workers that are known.", ("state",), by(found.workers_by_state)
    )
    yield counter(
        "kestrel_worker_joins", "Times that a worker came or came back.", totals.worker_joins
    )
    yield counters(
        "kestrel_quarantines",
        "Times that a worker was put in quarantine.",
        ("cause",),
        by(totals.quarantines),
    )
    yield gauge(
        "kestrel_long_tasks",
        "Running tasks of which workers have said what they use.",
        found.long_tasks,
    )
    yield gauge(
        "kestrel_long_tasks_memory_bytes",
        "What they hold of memory together, as it was last said.",
        found.long_tasks_bytes,
    )
    used = {name: amount - found.free.get(name, 0) for name, amount in found.capacity.items()}
    for name, text, amounts in (
        ("capacity", "What the workers that are online have.", found.capacity),
        ("used", "What running tasks asked for of it.", used),
        ("free", "What is left of it.", found.free),
    ):
        yield gauges(f"kestrel_asset_{name}", text, ("asset",), by(natural(amounts)))
    labels = [(quoted(label),) for label in worker_labels(found.workers)]
    for name, text, values in (
        ("up", "1 if the worker is online.", [int(worker.online) for worker in found.workers]),
        ("running", "Tasks that run there.", [worker.running for worker in found.workers]),
    ):
        yield LabelledGauges(f"kestrel_worker_{name}", text, ("worker",), labels, values)
    assets = {name: quoted(name) for name in found.capacity}
    offers = [
        (worker_label, assets[asset], amount / MILLI)
        for (worker_label,), worker in zip(labels, found.workers, strict=True)
        for asset, amount in worker.capacity.items()
    ]
    yield LabelledGauges(
        "kestrel_worker_capacity",
        "What it offers.",
        ("worker", "asset"),
        [(worker_label, asset) for worker_label, asset, _ in offers],
        [amount for _, _, amount in offers],
    )
    yield gauge(
        "kestrel_worker_clock_skew_seconds_max",
        "The largest difference between a worker's clock and the manager's.",
        found.skew_seconds,
    )


def worker_labels(workers: Sequence[WorkerNumbers]) -> list[str]:
    """`name/resource` of each, or its whole address if another worker has the same."""
    taken: set[str] = set()
    found = []
    for worker in workers:
        bare, slash, resource = worker.jid.partition("/")
        label = f"{bare.partition('@')[0]}{slash}{resource}"
        found.append(worker.jid if label in taken else label)
        taken.add(label)
    return found


def _surroundings(numbers: ManagerProcessNumbers) -> Iterator[Metric]:
    yield histogram("kestrel_commit_seconds", "Time of a commit that succeeded.", numbers.commits)
    yield counter("kestrel_commit_records", "Records made durable.", numbers.store.records)
    yield gauge("kestrel_store_bytes", "The store on disk.", numbers.store.bytes_on_disk)
    yield gauge(
        "kestrel_store_free_bytes", "Of it, what is free for new rows.", numbers.store.free_bytes
    )
    yield gauge(
        "kestrel_store_error", "1 while the store cannot be written.", bool(numbers.store_error)
    )
    yield counters(
        "kestrel_log_repeats",
        "Warnings that were counted instead of written, because many like them were.",
        ("logger",),
        by({name.removeprefix("kestrelctl."): count for name, count in repeats.left_out.items()}),
    )
    yield gauge("kestrel_server_connected", "1 while the XMPP server is there.", numbers.connected)
    yield counter(
        "kestrel_server_conflicts",
        "Times that the server refused this manager because another one was connected.",
        numbers.conflicts,
    )
    yield certificate_family(numbers.certificate)
    yield gauges(
        "kestrel_sends_waiting",
        "Messages that wait at the manager, for a limit or for room in its connection.",
        ("kind",),
        by(numbers.sends_waiting),
    )
    yield counters(
        "kestrel_mails",
        "Mails to users about ends of their jobs, by what came of the try.",
        ("outcome",),
        by(
            {
                "sent": numbers.mails.sent,
                "delayed": numbers.mails.delayed,
                "refused": numbers.mails.refused,
                "given-up": numbers.mails.given_up,
            }
        ),
    )


def _properties(found: Sequence[tuple[str, str, PropertySummary]]) -> Iterator[Metric]:
    yield gauges(
        "kestrel_property_workers",
        "Workers by whether they tell a value of a property that was chosen, of a group or of all.",
        ("property", "group", "state"),
        (
            ((name, group, state), count)
            for name, group, summary in found
            for state, count in (("told", summary.count), ("missing", summary.missing))
        ),
    )
    yield gauges(
        "kestrel_property",
        "The least, the mean and the greatest value of a property that was chosen.",
        ("property", "group", "statistic"),
        (
            ((name, group, statistic), amount)
            for name, group, summary in found
            for statistic in ("min", "mean", "max")
            if (amount := getattr(summary, statistic)) is not None
        ),
    )


def _environment_families(found: Mapping[str, EnvironmentNumbers]) -> Iterator[Metric]:
    yield gauges(
        "kestrel_environments",
        "Environments of a class, by phase.",
        ("class", "phase"),
        (((name, phase), n) for name, each in found.items() for phase, n in each.phases.items()),
    )
    yield gauges(
        "kestrel_environment_waiting_tasks",
        "Waiting tasks that no worker can run and an environment of a class could.",
        ("class",),
        (((name,), each.waiting) for name, each in found.items()),
    )
    yield gauges(
        "kestrel_environment_failing_hosts",
        "Hosts at which the latest start of an environment of a class failed.",
        ("class",),
        (((name,), each.failing_hosts) for name, each in found.items()),
    )
    yield counters(
        "kestrel_environments_started",
        "Environments of a class whose workers have been given work.",
        ("class",),
        (((name,), each.started) for name, each in found.items()),
    )
    yield counters(
        "kestrel_environment_failed_starts",
        "Starts of environments of a class that failed.",
        ("class",),
        (((name,), each.failed) for name, each in found.items()),
    )
