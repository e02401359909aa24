"""How fast: tasks a second, and where the time of a task goes."""

from __future__ import annotations

from grafana import Board, Query, Row
from panels import ORANGE, RED, latency, timeseries

from boards.words import OUTCOME_COLOURS, per_second, quantiles

_WAIT = "From a job's submission, or the retry that brought it back, to the first hand-out."
_DISPATCH = "What Kestrel adds to a task: hand-out to report, less its queue and run time."
_RUN = "Run time of attempts that succeeded or failed."

BOARD = Board(
    "kestrel-throughput",
    "Kestrel: throughput and latency",
    "How many tasks a second the pool takes, starts and ends, and where a task's time goes.",
    [
        Row(
            "Throughput",
            [
                timeseries(
                    "Tasks in and out",
                    "ops",
                    "Tasks taken in and tasks that ended, a second. In above out for long: the "
                    "queue grows.",
                    per_second("kestrel_tasks_submitted_total"),
                    per_second("kestrel_tasks_finished_total"),
                ),
                timeseries(
                    "Tasks that ended, by outcome",
                    "ops",
                    "Done: exit status 0. Failed: out of attempts. Lost: its workers went away "
                    "too often.",
                    per_second("kestrel_tasks_finished_total", "outcome"),
                    colours=OUTCOME_COLOURS,
                    stack=True,
                ),
                timeseries(
                    "Attempts handed out",
                    "ops",
                    "Executions given to workers, a second; above the tasks that end when tasks "
                    "are tried again.",
                    per_second("kestrel_attempts_total"),
                    per_second("kestrel_attempts_recalled_total"),
                ),
                timeseries(
                    "Jobs in and out",
                    "ops",
                    "Jobs taken in, and jobs that ended by outcome, a second.",
                    per_second("kestrel_jobs_submitted_total"),
                    per_second("kestrel_jobs_finished_total", "outcome"),
                    colours=OUTCOME_COLOURS,
                ),
                timeseries(
                    "Tasks at workers",
                    "short",
                    "Running, and queued at a worker behind others so that it need not wait for "
                    "the next.",
                    Query('sum(kestrel_tasks{%m, state="running"})', "running"),
                    Query('sum(kestrel_tasks{%m, state="queued"})', "queued"),
                    Query('sum(kestrel_asset_capacity{%m, asset="cpus"})', "processors"),
                ),
                timeseries(
                    "Messages a task",
                    "short",
                    "Messages of the manager, both ways, for each task that ends. Batches make "
                    "it fall under load.",
                    Query(
                        "sum(rate(kestrel_stanzas_total{%m}[$__rate_interval])) / "
                        "(sum(rate(kestrel_tasks_finished_total{%m}[$__rate_interval])) > 0)",
                        "messages",
                    ),
                    links_to="kestrel-server",
                ),
            ],
        ),
        Row(
            "Latency",
            [
                latency("Wait", _WAIT, "kestrel_task_wait_seconds"),
                latency("Dispatch", _DISPATCH, "kestrel_task_dispatch_seconds"),
                latency("Run", _RUN, "kestrel_task_run_seconds"),
                timeseries(
                    "Wait, percentiles",
                    "s",
                    _WAIT,
                    *quantiles("kestrel_task_wait_seconds"),
                    logarithmic=True,
                ),
                timeseries(
                    "Dispatch, percentiles",
                    "s",
                    _DISPATCH,
                    *quantiles("kestrel_task_dispatch_seconds"),
                    logarithmic=True,
                ),
                timeseries(
                    "Run, percentiles",
                    "s",
                    _RUN,
                    *quantiles("kestrel_task_run_seconds"),
                    logarithmic=True,
                ),
            ],
        ),
        Row(
            "What goes wrong",
            [
                timeseries(
                    "Losses by cause",
                    "ops",
                    "Attempts lost after they had begun. unavailable: the server said that the "
                    "worker is gone; lease: it fell silent.",
                    per_second("kestrel_losses_total", "cause"),
                    stack=True,
                    links_to="kestrel-workers",
                ),
                timeseries(
                    "Retries",
                    "ops",
                    "Tasks that got another attempt, after a failure or a loss.",
                    per_second("kestrel_retries_total", "reason"),
                    colours={"failure": ORANGE, "loss": RED},
                    stack=True,
                ),
                timeseries(
                    "Late news",
                    "ops",
                    "Leases that ran out, lost attempts that turned out to live, and results that "
                    "came too late to count.",
                    per_second("kestrel_leases_expired_total"),
                    per_second("kestrel_losses_found_again_total"),
                    per_second("kestrel_duplicates_refused_total"),
                ),
            ],
        ),
        Row(
            "Files, stages and mail",
            [
                timeseries(
                    "Stored",
                    "Bps",
                    "What tasks left and printed that lies in the file share, by kind.",
                    per_second("kestrel_stored_bytes_total", "kind"),
                    width=6,
                ),
                timeseries(
                    "Not stored",
                    "ops",
                    "Attempts of which something was not stored, by why. All but logs-failed fail "
                    "the task.",
                    per_second("kestrel_storing_failures_total", "reason"),
                    width=6,
                ),
                timeseries(
                    "Tasks in each stage",
                    "short",
                    "Of jobs that have stages: how many tasks are in one at a time, by the time "
                    "that those which ended have spent there.",
                    per_second("kestrel_stage_seconds_sum", "stage"),
                    stack=True,
                    width=6,
                ),
                timeseries(
                    "Mails",
                    "ops",
                    "Mails to users about ends of their jobs, by what came of the try.",
                    per_second("kestrel_mails_total", "outcome"),
                    width=6,
                ),
            ],
        ),
    ],
)
