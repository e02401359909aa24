"""Is the pool well, and is it busy? The first look."""

from __future__ import annotations

from grafana import Board, Query, Row
from panels import BLUE, GREEN, ORANGE, RED, YELLOW, bars, stat, timeseries

from boards.words import (
    OUTCOME_COLOURS,
    TASK_COLOURS,
    UNMATCHABLE,
    UP,
    WORKER_COLOURS,
    by,
    per_second,
)

BOARD = Board(
    "kestrel-overview",
    "Kestrel: pool overview",
    "Whether the pool is well and busy. Green is healthy, blue under-used, red wants action.",
    [
        Row(
            "Now",
            [
                stat(
                    "Manager",
                    "short",
                    "Whether Prometheus reaches the manager. Without it nothing is handed out; "
                    "what runs goes on.",
                    'min(up{job="kestrel-manager", %m})',
                    words=UP,
                ),
                stat(
                    "XMPP server",
                    "short",
                    "Whether the manager is connected to the XMPP server. Workers reach it only "
                    "through that.",
                    "min(kestrel_server_connected{%m})",
                    words={1: ("connected", GREEN), 0: ("GONE", RED)},
                    links_to="kestrel-server",
                ),
                stat(
                    "Store",
                    "short",
                    "Whether results and jobs can be made durable. While they cannot, nothing is "
                    "acknowledged.",
                    "max(kestrel_store_error{%m})",
                    words={0: ("writes", GREEN), 1: ("FAILING", RED)},
                    links_to="kestrel-server",
                ),
                stat(
                    "Workers that take tasks",
                    "short",
                    "Idle and busy workers. Draining, quarantined and offline ones do not count.",
                    "sum(instance:kestrel_workers_usable:sum{%m})",
                    ((None, RED), (1, GREEN)),
                    links_to="kestrel-workers",
                ),
                stat(
                    "Processors in use",
                    "percentunit",
                    "Share of the processors online that running tasks asked for. Blue: there is "
                    "room for more work.",
                    "avg(instance:kestrel_cpus_used:ratio{%m})",
                    ((None, BLUE), (0.5, GREEN)),
                    no_value="no workers",
                    links_to="kestrel-resources",
                ),
                stat(
                    "Can run nowhere",
                    "short",
                    "Tasks that no worker in the list could ever run: a tag is missing, or all "
                    "machines are too small.",
                    'sum(kestrel_unmatched_tasks{%m, reason=~"' + UNMATCHABLE + '"})',
                    ((None, GREEN), (1, RED)),
                    links_to="kestrel-waiting",
                ),
                stat(
                    "Ended well, last hour",
                    "percentunit",
                    "Share of the tasks that ended in the last hour with exit status 0. "
                    "Cancelled ones do not count.",
                    'sum(increase(kestrel_tasks_finished_total{%m, outcome="done"}[1h])) / '
                    '(sum(increase(kestrel_tasks_finished_total{%m, outcome!="cancelled"}[1h]))'
                    " > 0)",
                    ((None, RED), (0.9, YELLOW), (0.99, GREEN)),
                    no_value="none ended",
                    links_to="kestrel-throughput",
                ),
                stat(
                    "Alerts",
                    "short",
                    "Alerts of the pool that fire now.",
                    'count(ALERTS{alertname=~"Kestrel.+", alertstate="firing"}) or vector(0)',
                    ((None, GREEN), (1, RED)),
                ),
            ],
        ),
        Row(
            "Work",
            [
                timeseries(
                    "Tasks by state",
                    "short",
                    "Tasks without a final state: waiting for a worker, queued at one behind "
                    "others, running.",
                    by("kestrel_tasks", "state"),
                    colours=TASK_COLOURS,
                    stack=True,
                    links_to="kestrel-waiting",
                ),
                timeseries(
                    "Tasks that ended",
                    "ops",
                    "Tasks that came to their final state, a second.",
                    per_second("kestrel_tasks_finished_total", "outcome"),
                    colours=OUTCOME_COLOURS,
                    stack=True,
                    links_to="kestrel-throughput",
                ),
                timeseries(
                    "Jobs",
                    "short",
                    "Jobs that have not ended.",
                    by("kestrel_jobs", "state"),
                ),
            ],
        ),
        Row(
            "Machines",
            [
                timeseries(
                    "Workers by state",
                    "short",
                    "All workers that the manager knows. An offline one is forgotten after an "
                    "hour.",
                    by("kestrel_workers", "state"),
                    colours=WORKER_COLOURS,
                    stack=True,
                    links_to="kestrel-workers",
                ),
                timeseries(
                    "Attempts lost",
                    "percentunit",
                    "Lost attempts as a share of those handed out, over 15 minutes. Some loss is "
                    "normal where machines come and go; above the red line an alert fires.",
                    Query("max by (instance) (instance:kestrel_losses:ratio_rate15m{%m})"),
                    bands=((None, "transparent"), (0.02, YELLOW), (0.05, RED)),
                    links_to="kestrel-throughput",
                ),
                bars(
                    "Assets in use",
                    "percentunit",
                    "What running tasks asked for, as a share of what the workers online have.",
                    Query(
                        "sum by (asset) (kestrel_asset_used{%m}) / "
                        "(sum by (asset) (kestrel_asset_capacity{%m}) > 0)",
                        "{{asset}}",
                    ),
                    steps=((None, BLUE), (0.5, GREEN), (0.98, ORANGE)),
                    maximum=1,
                    links_to="kestrel-resources",
                ),
                timeseries(
                    "Processors on loan",
                    "short",
                    "Given to other pools of the flock and taken from them, of all of them "
                    "together. Empty while nothing is lent.",
                    by("kestrel_flock_loan_cpus", "direction"),
                    colours={"given": BLUE, "taken": GREEN},
                    links_to="kestrel-flock",
                ),
            ],
        ),
    ],
)
