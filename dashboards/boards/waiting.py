"""Why tasks wait: what holds them back, demand against supply, and whose they are."""

from __future__ import annotations

from grafana import Board, Query, Row
from panels import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    YELLOW,
    bars,
    latency,
    stat,
    table,
    timeseries,
)

from boards.words import UNMATCHABLE, WORKER_COLOURS, by, quantiles

_REASONS = {
    "busy": GREEN,
    "reserved": YELLOW,
    "held": PURPLE,
    "max-running": BLUE,
    "tokens": BLUE,
    "quota": BLUE,
    "backoff": YELLOW,
    "recovering": PURPLE,
    "draining": YELLOW,
    "cancelling": GREY,
    "offline": ORANGE,
    "no-workers": RED,
    "quarantined": RED,
    "missing-tags": RED,
    "missing-asset": RED,
    "policy": RED,
    "too-small": RED,
    "requirements": RED,
    "start": RED,
    "undefined": RED,
    "error": RED,
    "not-stored": ORANGE,
    "store-failing": RED,
}
_WHY = (
    "The reasons that `kestrelctl job explain` gives. busy: all that could run it are full; "
    "reserved: it waited so long that a worker is kept for it; "
    "held: its job is on hold; "
    "max-running: the job's own limit; quota: its user's; tokens: too few of the pool's own assets "
    "are free; "
    "missing-tags, missing-asset, policy, too-small, requirements, start, undefined, error: "
    "no worker could ever run it."
)

BOARD = Board(
    "kestrel-waiting",
    "Kestrel: why waiting",
    "What holds tasks back, demand against supply, and whose tasks wait.",
    [
        Row(
            "Why",
            [
                timeseries(
                    "Waiting tasks by reason",
                    "short",
                    _WHY,
                    by("kestrel_unmatched_tasks", "reason"),
                    colours=_REASONS,
                    stack=True,
                    width=12,
                ),
                bars(
                    "Now",
                    "short",
                    _WHY,
                    Query("sort_desc(sum by (reason) (kestrel_unmatched_tasks{%m}))", "{{reason}}"),
                    steps=((None, BLUE),),
                    width=6,
                ),
                stat(
                    "Can run nowhere",
                    "short",
                    "Tasks that no worker in the list could ever run. Their owner, or a machine "
                    "or an environment with that tag or size, can change it.",
                    'sum(kestrel_unmatched_tasks{%m, reason=~"' + UNMATCHABLE + '"})',
                    ((None, GREEN), (1, RED)),
                    links_to="kestrel-environments",
                ),
                stat(
                    "Since the last hand-out",
                    "s",
                    "Time since tasks were last handed out. Long is fine while nothing waits or "
                    "long tasks fill all workers.",
                    "time() - max(kestrel_last_dispatch_timestamp_seconds{%m})",
                    ((None, BLUE),),
                    no_value="none yet",
                ),
            ],
        ),
        Row(
            "Demand against supply",
            [
                timeseries(
                    "Tasks against processors",
                    "short",
                    "All tasks that have not ended, those that run, and the processors online. A "
                    "task may ask for more than one processor.",
                    Query("sum(kestrel_tasks{%m})", "wanted"),
                    Query('sum(kestrel_tasks{%m, state="running"})', "running"),
                    Query('sum(kestrel_asset_capacity{%m, asset="cpus"})', "processors"),
                    colours={"wanted": ORANGE, "running": GREEN, "processors": BLUE},
                ),
                timeseries(
                    "Unmet demand",
                    "short",
                    "Waiting tasks that could not run now even if all were placed anew, by what "
                    "they ask for. Only more workers help against these.",
                    Query("sum by (shape) (kestrel_unmet_tasks{%m})", "{{shape}}"),
                    stack=True,
                    width=12,
                ),
                timeseries(
                    "Saturated workers",
                    "short",
                    "Of which another one would let more of the unmet tasks run, by what they "
                    "offer, and by the asset that they are out of.",
                    Query(
                        "sum by (worker_class, asset) (kestrel_saturated_workers{%m})",
                        "{{worker_class}}: {{asset}}",
                    ),
                    width=12,
                ),
                timeseries(
                    "Time to empty the queue",
                    "s",
                    "Tasks that have not ended, by the rate at which tasks end now.",
                    Query(
                        "sum(kestrel_tasks{%m}) / "
                        "(sum(rate(kestrel_tasks_finished_total{%m}[$__rate_interval])) > 0)",
                        "at this rate",
                    ),
                ),
                timeseries(
                    "Workers by state",
                    "short",
                    "Supply: only idle and busy workers take tasks.",
                    by("kestrel_workers", "state"),
                    colours=WORKER_COLOURS,
                    stack=True,
                    links_to="kestrel-workers",
                ),
                timeseries(
                    "Wait, percentiles",
                    "s",
                    "From submission to the first hand-out, of the tasks handed out at that time.",
                    *quantiles("kestrel_task_wait_seconds"),
                    logarithmic=True,
                ),
                latency(
                    "Wait",
                    "From submission to the first hand-out, of the tasks handed out at that time.",
                    "kestrel_task_wait_seconds",
                    width=16,
                ),
                timeseries(
                    "Tokens of the pool",
                    "short",
                    "What the whole pool has, such as licences, and what attempts hold of it. More "
                    "can be held than there are after an operator took some away.",
                    Query("sum by (asset) (kestrel_tokens{%m})", "{{asset}}: all"),
                    Query("sum by (asset) (kestrel_tokens_held{%m})", "{{asset}}: held"),
                ),
            ],
        ),
        Row(
            "Whose",
            [
                timeseries(
                    "Waiting, by owner",
                    "short",
                    "Of the ten owners with the most.",
                    Query(
                        'topk(10, sum by (owner) (kestrel_owner_tasks{%m, state="waiting"}))',
                        "{{owner}}",
                    ),
                    stack=True,
                    width=12,
                ),
                timeseries(
                    "Shares",
                    "percentunit",
                    "The share of the pool that each owner would get if all wanted more than "
                    "there is, and what of all that runs is his, by cost. Of the 20 who run the "
                    "most.",
                    Query("sum by (owner) (kestrel_owner_share_ratio{%m})", "{{owner}}: share"),
                    Query(
                        "sum by (owner) (kestrel_owner_charged{%m}) / ignoring (owner) "
                        "group_left () (sum(kestrel_owner_charged{%m}) > 0)",
                        "{{owner}}: runs",
                    ),
                    width=12,
                ),
                table(
                    "Owners",
                    "Tasks of each owner, waiting and at a worker; beyond 50 owners the rest are "
                    "`other`.",
                    "owner",
                    [
                        (
                            state.capitalize(),
                            f'sum by (owner) (kestrel_owner_tasks{{%m, state="{state}"}})',
                            "short",
                        )
                        for state in ("waiting", "running")
                    ],
                    sort_by="Waiting",
                    links_to="kestrel-resources",
                ),
            ],
        ),
    ],
)
