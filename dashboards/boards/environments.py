"""Which environments there are, what waits for some, and which do not start."""

from __future__ import annotations

from grafana import Board, Query, Row
from panels import BLUE, GREEN, RED, YELLOW, stat, table, timeseries

from boards.words import by

_PHASES = {"starting": BLUE, "ready": GREEN, "stopping": YELLOW}


def _by_class(expr: str) -> Query:
    return Query(f"sum by (class) ({expr})", "{{class}}")


BOARD = Board(
    "kestrel-environments",
    "Kestrel: environments",
    "Which environments there are, which tasks wait for some, and which classes do not start. "
    "Empty in a pool without classes.",
    [
        Row(
            "Now",
            [
                stat(
                    "Ready",
                    "short",
                    "Environments whose workers are in the pool.",
                    'sum(kestrel_environments{%m, phase="ready"})',
                    ((None, BLUE), (1, GREEN)),
                    links_to="kestrel-workers",
                ),
                stat(
                    "Starting",
                    "short",
                    "Environments that were ordered, and whose workers have not joined yet.",
                    'sum(kestrel_environments{%m, phase="starting"})',
                    ((None, GREEN), (1, BLUE)),
                ),
                stat(
                    "Tasks that wait for one",
                    "short",
                    "Waiting tasks that no worker can run now and an environment could: of the "
                    "class of which most could.",
                    "max(kestrel_environment_waiting_tasks{%m})",
                    ((None, GREEN), (1, BLUE)),
                    links_to="kestrel-waiting",
                ),
                stat(
                    "Classes that fail",
                    "short",
                    "Classes of which the latest start failed at some host. `kestrelctl "
                    "environment explain CLASS` says why, and when it is tried again.",
                    "count(kestrel_environment_failing_hosts{%m} > 0) or vector(0)",
                    ((None, GREEN), (1, RED)),
                ),
            ],
        ),
        Row(
            "By class",
            [
                timeseries(
                    "Environments by phase",
                    "short",
                    "starting: ordered, and its worker has not joined yet; ready: its worker is in "
                    "the pool; stopping: told to end, and not gone yet. All of them have their "
                    "part of their host.",
                    by("kestrel_environments", "phase"),
                    colours=_PHASES,
                    stack=True,
                    width=12,
                ),
                timeseries(
                    "Environments by class",
                    "short",
                    "In whichever phase.",
                    _by_class("kestrel_environments{%m}"),
                    stack=True,
                    width=12,
                ),
                timeseries(
                    "Tasks that wait, by class that could run them",
                    "short",
                    "Waiting tasks that no worker can run now; one that several classes could run "
                    "counts for each of them.",
                    _by_class("kestrel_environment_waiting_tasks{%m}"),
                    links_to="kestrel-waiting",
                    width=12,
                ),
                timeseries(
                    "Started",
                    "ops",
                    "Environments whose workers have been given work for the first time, a second.",
                    _by_class("rate(kestrel_environments_started_total{%m}[$__rate_interval])"),
                    width=12,
                ),
                timeseries(
                    "Failed starts",
                    "ops",
                    "Environments that could not be made, did not join in time, or had nothing to "
                    "do though work seemed to need them. Each makes the pause before the next "
                    "start longer.",
                    _by_class(
                        "rate(kestrel_environment_failed_starts_total{%m}[$__rate_interval])"
                    ),
                    width=12,
                ),
                timeseries(
                    "Hosts at which a class fails",
                    "short",
                    "Hosts at which the latest start of one failed. Until the pause is over none "
                    "is started there.",
                    _by_class("kestrel_environment_failing_hosts{%m}"),
                    bands=((None, GREEN), (1, RED)),
                    width=12,
                ),
                table(
                    "Classes",
                    "What there is of each class, and what came of its starts since the manager's "
                    "own.",
                    "class",
                    [
                        ("Environments", "sum by (class) (kestrel_environments{%m})", "short"),
                        (
                            "Tasks that wait",
                            "sum by (class) (kestrel_environment_waiting_tasks{%m})",
                            "short",
                        ),
                        (
                            "Started",
                            "sum by (class) (kestrel_environments_started_total{%m})",
                            "short",
                        ),
                        (
                            "Failed starts",
                            "sum by (class) (kestrel_environment_failed_starts_total{%m})",
                            "short",
                        ),
                    ],
                    sort_by="Tasks that wait",
                    width=24,
                ),
            ],
        ),
    ],
)
