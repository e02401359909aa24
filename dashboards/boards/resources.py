"""What the machines have, what is in use, and by whom."""

from __future__ import annotations

from grafana import Board, Query, Row
from panels import BLUE, GREEN, GREY, ORANGE, bars, table, timeseries

from boards.words import by

_COLOURS = {"used": GREEN, "free": BLUE, "capacity": GREY}


def _parts(asset: str) -> list[Query]:
    return [
        Query(f'sum(kestrel_asset_{part}{{%m, asset="{asset}"}})', part)
        for part in ("used", "free")
    ]


def _of_owners(state: str) -> str:
    return f'sum by (owner) (kestrel_owner_tasks{{%m, state="{state}"}})'


BOARD = Board(
    "kestrel-resources",
    "Kestrel: resources",
    "What the workers online have, what running tasks asked for of it, and whose they are.",
    [
        Row(
            "Assets",
            [
                bars(
                    "In use now",
                    "percentunit",
                    "What running tasks asked for, as a share of what there is. One asset full "
                    "while another is free: requests and machines do not fit each other.",
                    Query(
                        "sum by (asset) (kestrel_asset_used{%m}) / "
                        "(sum by (asset) (kestrel_asset_capacity{%m}) > 0)",
                        "{{asset}}",
                    ),
                    steps=((None, BLUE), (0.5, GREEN), (0.98, ORANGE)),
                    maximum=1,
                    width=6,
                ),
                timeseries(
                    "Processors",
                    "short",
                    "Processors of the workers online: asked for by running tasks, and free.",
                    *_parts("cpus"),
                    colours=_COLOURS,
                    stack=True,
                    width=9,
                ),
                timeseries(
                    "Memory",
                    "bytes",
                    "Memory of the workers online: asked for by running tasks, and free.",
                    *_parts("memory"),
                    colours=_COLOURS,
                    stack=True,
                    width=9,
                ),
                timeseries(
                    "Share in use, by asset",
                    "percentunit",
                    "Over time. Blue in the overview means that this was below one half.",
                    Query(
                        "sum by (asset) (kestrel_asset_used{%m}) / "
                        "(sum by (asset) (kestrel_asset_capacity{%m}) > 0)",
                        "{{asset}}",
                    ),
                    maximum=1,
                    width=12,
                ),
                timeseries(
                    "Capacity by worker process",
                    "short",
                    "Processors that each worker process offers.",
                    Query('sum by (instance) (kestrel_worker_offered{asset="cpus"})'),
                    stack=True,
                    width=12,
                ),
            ],
        ),
        Row(
            "Owners",
            [
                timeseries(
                    "Running, by owner",
                    "short",
                    "Tasks at workers, of the ten owners with the most.",
                    Query(f"topk(10, {_of_owners('running')})", "{{owner}}"),
                    stack=True,
                    width=12,
                ),
                timeseries(
                    "Waiting, by owner",
                    "short",
                    "Tasks that wait, of the ten owners with the most.",
                    Query(f"topk(10, {_of_owners('waiting')})", "{{owner}}"),
                    stack=True,
                    width=12,
                ),
                timeseries(
                    "Share of what runs, by owner",
                    "percentunit",
                    "Each owner's part of the tasks at workers.",
                    Query(
                        f"{_of_owners('running')} / on () group_left () "
                        '(sum(kestrel_owner_tasks{%m, state="running"}) > 0)',
                        "{{owner}}",
                    ),
                    stack=True,
                    maximum=1,
                    width=12,
                ),
                table(
                    "Owners",
                    "Tasks of each owner now; beyond 50 owners the rest are `other`.",
                    "owner",
                    [
                        ("Running", _of_owners("running"), "short"),
                        ("Waiting", _of_owners("waiting"), "short"),
                    ],
                    sort_by="Running",
                    links_to="kestrel-waiting",
                ),
            ],
        ),
        Row(
            "By state",
            [
                timeseries(
                    "Tasks",
                    "short",
                    "All tasks that have not ended, by state.",
                    by("kestrel_tasks", "state"),
                    stack=True,
                    width=12,
                    links_to="kestrel-waiting",
                ),
                timeseries(
                    "Workers",
                    "short",
                    "All workers, by state.",
                    by("kestrel_workers", "state"),
                    stack=True,
                    width=12,
                    links_to="kestrel-workers",
                ),
            ],
        ),
    ],
)
