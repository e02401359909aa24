"""Each machine: who is there, who works, who is in trouble."""

from __future__ import annotations

from grafana import MANAGER, Board, Query, Row, Variable
from panels import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    RED,
    YELLOW,
    heat_rows,
    stat,
    state_timeline,
    table,
    timeseries,
)

from boards.words import OUTCOME_COLOURS, WORKER_COLOURS, by, per_second, quantiles

_WORKERS = '%m, worker=~"$worker"'
_HOSTS = 'instance=~"$host"'
_PROCESS = 'job="kestrel-worker", instance=~"$host"'


def _of_worker(name: str) -> str:
    return f"sum by (worker) (kestrel_worker_{name}{{{_WORKERS}}})"


_CPUS = f'sum by (worker) (kestrel_worker_capacity{{{_WORKERS}, asset="cpus"}})'


BOARD = Board(
    "kestrel-workers",
    "Kestrel: workers",
    "Who is there and who works: each worker as the manager sees it, each process as it sees "
    "itself.",
    [
        Row(
            "As the manager sees them",
            [
                timeseries(
                    "Workers by state",
                    "short",
                    "Quarantined: failed too many tasks too fast. Unheard: came back and has yet "
                    "to say what it holds. Draining: takes no new tasks.",
                    by("kestrel_workers", "state"),
                    colours=WORKER_COLOURS,
                    stack=True,
                    width=9,
                ),
                timeseries(
                    "Comings and troubles",
                    "ops",
                    "Workers that came or came back, that were quarantined, and that fell silent "
                    "until their lease ran out, a second.",
                    per_second("kestrel_worker_joins_total"),
                    per_second("kestrel_quarantines_total"),
                    per_second("kestrel_leases_expired_total"),
                    width=9,
                ),
                stat(
                    "Largest clock skew",
                    "s",
                    "The largest difference between the clock of a worker online and the "
                    "manager's. Times in reports are wrong by as much.",
                    "max(kestrel_worker_clock_skew_seconds_max{%m})",
                    ((None, GREEN), (1, YELLOW), (5, RED)),
                    no_value="no workers",
                ),
                stat(
                    "Quarantined",
                    "short",
                    "Workers set aside for a while because they failed too fast too often.",
                    'sum(kestrel_workers{%m, state="quarantined"})',
                    ((None, GREEN), (1, RED)),
                ),
                state_timeline(
                    "State of each worker",
                    "Offline, idle or busy, over time.",
                    Query(
                        f"({_of_worker('running')} > bool 0) + {_of_worker('up')}",
                        "{{worker}}",
                    ),
                    {0: ("offline", GREY), 1: ("idle", BLUE), 2: ("busy", GREEN)},
                ),
                heat_rows(
                    "How full each worker is",
                    "percentunit",
                    "Tasks that run at each worker, as a share of its processors.",
                    Query(
                        f"{_of_worker('running')} / ({_CPUS} > 0)",
                        "{{worker}}",
                    ),
                    maximum=1,
                    width=14,
                ),
                table(
                    "Workers",
                    "Each worker now.",
                    "worker",
                    [
                        ("Online", _of_worker("up"), "short"),
                        ("Running", _of_worker("running"), "short"),
                        ("Processors", _CPUS, "short"),
                    ],
                    sort_by="Running",
                    width=10,
                ),
                table(
                    "Versions",
                    "What runs where: more than one line while an upgrade is under way.",
                    "version",
                    [
                        ("Managers", "count by (version) (kestrel_build_info{%m})", "short"),
                        (
                            "Workers",
                            f"count by (version) (kestrel_worker_build_info{{{_PROCESS}}})",
                            "short",
                        ),
                    ],
                    sort_by="Workers",
                    width=10,
                ),
            ],
        ),
        Row(
            "As their processes see themselves",
            [
                timeseries(
                    "Sessions",
                    "short",
                    "Sessions that the pool has welcomed, and the others. A process may be many "
                    "workers.",
                    by("kestrel_worker_sessions", "state", _HOSTS),
                    colours={"online": GREEN, "offline": GREY},
                    stack=True,
                ),
                timeseries(
                    "Tasks running",
                    "short",
                    "Tasks that run in each process's care.",
                    by("kestrel_worker_tasks_running", "instance", _HOSTS),
                    stack=True,
                ),
                timeseries(
                    "Tasks queued",
                    "short",
                    "Tasks kept ready behind those that run.",
                    by("kestrel_worker_tasks_queued", "instance", _HOSTS),
                    stack=True,
                ),
                timeseries(
                    "Attempts that ended",
                    "ops",
                    "Attempts that ended, a second. Killed: by a time limit or a cancellation. "
                    "Unable: the machine could not start them.",
                    per_second("kestrel_worker_tasks_finished_total", "outcome", _HOSTS),
                    colours={**OUTCOME_COLOURS, "killed": GREY, "unable": RED},
                    stack=True,
                ),
                timeseries(
                    "Time to start a process",
                    "s",
                    "How long the machine takes to start a task's process.",
                    *quantiles("kestrel_worker_spawn_seconds", _HOSTS),
                    logarithmic=True,
                ),
                timeseries(
                    "Run time of attempts",
                    "s",
                    "Of attempts that succeeded or failed, as the worker measured it.",
                    *quantiles("kestrel_worker_task_run_seconds", _HOSTS),
                    logarithmic=True,
                ),
                timeseries(
                    "Results not acknowledged",
                    "short",
                    "Results that wait for the manager's word that they are durable. They pile "
                    "up while the manager or its store is away.",
                    by("kestrel_worker_unreported_results", "instance", _HOSTS),
                    stack=True,
                ),
                timeseries(
                    "Spool on disk",
                    "bytes",
                    "What the workers keep until it is acknowledged.",
                    by("kestrel_worker_spool_bytes", "instance", _HOSTS),
                    stack=True,
                ),
                stat(
                    "Spools degraded",
                    "short",
                    "Processes whose results are only in memory because the disk refuses them.",
                    f"sum(kestrel_worker_spool_degraded{{{_HOSTS}}})",
                    ((None, GREEN), (1, RED)),
                    width=4,
                ),
                stat(
                    "Reconnects, last hour",
                    "short",
                    "Times that a session came back in the last hour.",
                    f"sum(increase(kestrel_worker_reconnects_total{{{_HOSTS}}}[1h]))",
                    ((None, GREEN), (10, ORANGE)),
                    width=4,
                ),
                timeseries(
                    "Messages",
                    "ops",
                    "Messages of the worker processes, a second.",
                    per_second("kestrel_worker_stanzas_total", "direction", _HOSTS),
                ),
                timeseries(
                    "Bytes",
                    "Bps",
                    "Their JSON text, before XML quotes it.",
                    per_second("kestrel_worker_stanza_bytes_total", "direction", _HOSTS),
                ),
                timeseries(
                    "Event loop lag",
                    "s",
                    "How late the process's event loop is at worst. It should not wait behind "
                    "tasks.",
                    Query(
                        f"max by (instance) (kestrel_worker_event_loop_lag_max_seconds{{{_HOSTS}}})"
                    ),
                    bands=((None, "transparent"), (0.5, YELLOW), (2, RED)),
                ),
                timeseries(
                    "Processor time of the agents",
                    "percentunit",
                    "Share of one processor that each worker process itself takes, without its "
                    "tasks.",
                    Query(
                        "sum by (instance) "
                        f"(rate(process_cpu_seconds_total{{{_PROCESS}}}[$__rate_interval]))"
                    ),
                ),
                timeseries(
                    "Memory of the agents",
                    "bytes",
                    "Resident memory of each worker process itself.",
                    Query(f"sum by (instance) (process_resident_memory_bytes{{{_PROCESS}}})"),
                ),
            ],
        ),
    ],
    variables=(
        MANAGER,
        Variable("worker", "Worker", "label_values(kestrel_worker_up{%m}, worker)"),
        Variable("host", "Host", "label_values(kestrel_worker_start_time_seconds, instance)"),
    ),
)
