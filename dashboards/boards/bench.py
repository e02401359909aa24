"""One sweep, live: what `kestrelctl bench` draws afterwards."""

from __future__ import annotations

from grafana import Annotation, Board, Query, Row
from panels import BLUE, GREEN, ORANGE, RED, latency, stat, timeseries

from boards.words import OUTCOME_COLOURS, TASK_COLOURS, by, per_second, quantiles

_ENDED = "sum(rate(kestrel_tasks_finished_total{%m}[$__rate_interval]))"

BOARD = Board(
    "kestrel-bench",
    "Kestrel: bench run",
    "A sweep while it runs. Marks show where jobs begin and end. Scrape every few seconds to see "
    "short sweeps.",
    [
        Row(
            "The sweep",
            [
                stat(
                    "Tasks done in this window",
                    "short",
                    "Tasks that ended with exit status 0 in the time range shown.",
                    'sum(increase(kestrel_tasks_finished_total{%m, outcome="done"}[$__range]))',
                    ((None, BLUE), (1, GREEN)),
                    width=4,
                ),
                stat(
                    "Ended a second",
                    "ops",
                    "Tasks that end a second, now.",
                    _ENDED,
                    ((None, BLUE), (1, GREEN)),
                    width=4,
                ),
                stat(
                    "Best rate in this window",
                    "ops",
                    "The largest rate at which tasks ended in the time range shown.",
                    f"max_over_time({_ENDED}[$__range:])",
                    ((None, BLUE), (1, GREEN)),
                    width=4,
                ),
                stat(
                    "Processors in use",
                    "percentunit",
                    "Share of the processors that running tasks asked for.",
                    'sum(kestrel_asset_used{%m, asset="cpus"}) / '
                    '(sum(kestrel_asset_capacity{%m, asset="cpus"}) > 0)',
                    ((None, BLUE), (0.5, GREEN)),
                    no_value="no workers",
                    width=4,
                ),
                stat(
                    "Not done in this window",
                    "short",
                    "Tasks that failed or were lost in the time range shown.",
                    'sum(increase(kestrel_tasks_finished_total{%m, outcome=~"failed|lost"}'
                    "[$__range]))",
                    ((None, GREEN), (1, RED)),
                    width=4,
                ),
                stat(
                    "Left",
                    "short",
                    "Tasks that have not ended.",
                    "sum(kestrel_tasks{%m})",
                    ((None, BLUE), (1, GREEN)),
                    width=4,
                ),
                timeseries(
                    "Tasks running",
                    "short",
                    "The sweep's first curve: how many tasks run.",
                    by("kestrel_tasks", "state"),
                    colours=TASK_COLOURS,
                    width=12,
                ),
                timeseries(
                    "Dispatched and finished a second",
                    "ops",
                    "The sweep's second curve.",
                    per_second("kestrel_attempts_total"),
                    per_second("kestrel_tasks_finished_total"),
                    width=12,
                ),
                timeseries(
                    "Tasks ended so far",
                    "short",
                    "Since the manager's start, by outcome; its slope is the rate.",
                    by("kestrel_tasks_finished_total", "outcome"),
                    colours=OUTCOME_COLOURS,
                    width=12,
                ),
                timeseries(
                    "Dispatch, percentiles",
                    "s",
                    "What Kestrel adds to a task: hand-out to report, less its time in the queue "
                    "and running.",
                    *quantiles("kestrel_task_dispatch_seconds"),
                    logarithmic=True,
                    width=12,
                ),
            ],
        ),
        Row(
            "What limits it",
            [
                timeseries(
                    "Processor time of manager and agents",
                    "percentunit",
                    "Share of one processor. The manager cannot use more than one.",
                    Query(
                        "sum(rate(process_cpu_seconds_total"
                        '{job="kestrel-manager", %m}[$__rate_interval]))',
                        "manager",
                    ),
                    Query(
                        "sum(rate(process_cpu_seconds_total"
                        '{job="kestrel-worker"}[$__rate_interval]))',
                        "workers together",
                    ),
                ),
                timeseries(
                    "Tasks a message",
                    "short",
                    "Tasks that end for each message of the manager, both ways: how full the "
                    "batches are.",
                    Query(
                        f"{_ENDED} / "
                        "(sum(rate(kestrel_stanzas_total{%m}[$__rate_interval])) > 0)",
                        "tasks",
                    ),
                ),
                timeseries(
                    "Records a commit",
                    "short",
                    "How many records share the cost of one commit.",
                    Query(
                        "sum(rate(kestrel_commit_records_total{%m}[$__rate_interval])) / "
                        "(sum(rate(kestrel_commit_seconds_count{%m}[$__rate_interval])) > 0)",
                        "records",
                    ),
                ),
                latency(
                    "Dispatch",
                    "What Kestrel adds to a task, spread over time.",
                    "kestrel_task_dispatch_seconds",
                ),
                latency(
                    "Event loop lag",
                    "What every message to the manager waits for.",
                    "kestrel_event_loop_lag_seconds",
                ),
                timeseries(
                    "Time to start a process, percentiles",
                    "s",
                    "At the workers: below about a millisecond the machine keeps up.",
                    *quantiles("kestrel_worker_spawn_seconds", 'instance!=""'),
                    logarithmic=True,
                ),
            ],
        ),
    ],
    annotations=(
        Annotation(
            "Jobs begin",
            "sum(increase(kestrel_jobs_submitted_total{%m}[1m])) > 0",
            "a job was submitted",
            BLUE,
        ),
        Annotation(
            "Jobs end",
            "sum by (outcome) (increase(kestrel_jobs_finished_total{%m}[1m])) > 0",
            "a job ended: {{outcome}}",
            ORANGE,
        ),
    ),
    since="now-15m",
    refresh="5s",
)
