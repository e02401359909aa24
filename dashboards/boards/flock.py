"""Whom the pool lends to and borrows from, and whether its flock is well."""

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
    timeseries,
)

from boards.words import by, per_second, quantiles

_STATES = {
    "free": GREEN,
    "full": BLUE,
    "unwilling": YELLOW,
    "silent": GREY,
    "unreachable": RED,
}
_GUESTS = {
    "begun": BLUE,
    "done": GREEN,
    "failed": ORANGE,
    "given-back": YELLOW,
    "refused": PURPLE,
}
_HOSTILE = "absurd|flood|stranger|unreadable"

BOARD = Board(
    "kestrel-flock",
    "Kestrel: flock",
    "Which pools are there, what is lent and borrowed, how guests fare and what waits for a loan.",
    [
        Row(
            "Now",
            [
                stat(
                    "Member",
                    "short",
                    "Whether the pool is in a flock.",
                    "min(kestrel_flock_member{%m})",
                    words={1: ("member", GREEN), 0: ("alone", BLUE)},
                ),
                stat(
                    "Pools it knows",
                    "short",
                    "Other pools of the flock. A member that knows none can neither lend nor "
                    "borrow.",
                    "sum(kestrel_flock_known_pools{%m})",
                    ((None, BLUE), (1, GREEN)),
                ),
                stat(
                    "Lends",
                    "short",
                    "Whether it lends anything to anybody now. `kestrelctl flock status` says why "
                    "not.",
                    "max(kestrel_flock_lends{%m})",
                    words={1: ("lends", GREEN), 0: ("keeps all", BLUE)},
                ),
                stat(
                    "Loans given",
                    "short",
                    "Classes of its workers that other pools use now.",
                    'sum(kestrel_flock_loans{%m, direction="given"})',
                    ((None, BLUE), (1, GREEN)),
                ),
                stat(
                    "Loans taken",
                    "short",
                    "Classes of workers of other pools that it uses now.",
                    'sum(kestrel_flock_loans{%m, direction="taken"})',
                    ((None, BLUE), (1, GREEN)),
                ),
                stat(
                    "Cut off",
                    "short",
                    "Open loans whose other pool cannot be reached. Their tasks come home when "
                    "the lease is over.",
                    "sum(kestrel_flock_cut_off_loans{%m})",
                    ((None, GREEN), (1, RED)),
                ),
                stat(
                    "Tasks that want a place",
                    "short",
                    "Own tasks that wait and find none at home; neighbours are asked for them.",
                    "sum(kestrel_flock_wanting_tasks{%m})",
                    ((None, GREEN), (1, BLUE)),
                    links_to="kestrel-waiting",
                ),
                stat(
                    "Starved for",
                    "s",
                    "For how long such tasks have been there, and nobody has lent anything or had "
                    "any free.",
                    "max(kestrel_flock_starved_seconds{%m})",
                    ((None, GREEN), (60, YELLOW), (600, RED)),
                ),
            ],
        ),
        Row(
            "Neighbours",
            [
                timeseries(
                    "Pools by state",
                    "short",
                    "As `kestrelctl flock pools` shows them. free: something is free there; full: "
                    "nothing is; unwilling: it lends nothing; silent: it has said nothing that "
                    "holds; unreachable: messages come back.",
                    by("kestrel_flock_pools", "state"),
                    colours=_STATES,
                    stack=True,
                ),
                timeseries(
                    "Round trip",
                    "s",
                    "A message to a pool's manager and back; the nearest are asked first.",
                    Query("max by (pool) (kestrel_flock_round_trip_seconds{%m})", "{{pool}}"),
                    logarithmic=True,
                ),
                timeseries(
                    "Overlay",
                    "short",
                    "Pools that are known, and how many of them are in the routing table, which "
                    "hear what is free here, and in the leaf set.",
                    Query("sum(kestrel_flock_known_pools{%m})", "known"),
                    by("kestrel_flock_overlay_pools", "part"),
                ),
                timeseries(
                    "Announcements",
                    "ops",
                    "Of what is free: sent and received.",
                    per_second("kestrel_flock_announcements_total", "direction"),
                ),
                timeseries(
                    "Dropped messages",
                    "ops",
                    "By why. old and hearsay are usual where announcements are forwarded.",
                    per_second("kestrel_flock_dropped_total", "reason"),
                ),
                timeseries(
                    "Dropped as absurd, forged or too many",
                    "ops",
                    "Announcements of more than there is, messages from addresses that may not "
                    "send them or that cannot be read, and too many of one pool: a neighbour is "
                    "broken or hostile.",
                    per_second(
                        "kestrel_flock_dropped_total", "reason", '%m, reason=~"' + _HOSTILE + '"'
                    ),
                ),
            ],
        ),
        Row(
            "Loans",
            [
                timeseries(
                    "Processors on loan",
                    "short",
                    "By the other pool: given to it, or taken from it. Beyond the 50 nearest "
                    "pools the rest are `other`.",
                    Query(
                        "sum by (pool, direction) (kestrel_flock_loan_cpus{%m})",
                        "{{pool}}: {{direction}}",
                    ),
                    width=12,
                ),
                timeseries(
                    "Tasks on loans",
                    "short",
                    "Own tasks at other pools, and theirs here.",
                    Query(
                        "sum by (pool, direction) (kestrel_flock_loan_tasks{%m})",
                        "{{pool}}: {{direction}}",
                    ),
                    width=12,
                ),
                timeseries(
                    "Asked for",
                    "short",
                    "Own tasks that want a place, and the loans that are asked for.",
                    Query("sum(kestrel_flock_wanting_tasks{%m})", "tasks that want a place"),
                    Query("sum(kestrel_flock_wishes{%m})", "loans asked for"),
                    links_to="kestrel-waiting",
                ),
                timeseries(
                    "Starved",
                    "s",
                    "For how long tasks have wanted a place, and nobody has lent anything or had "
                    "any free.",
                    Query("max(kestrel_flock_starved_seconds{%m})", "starved"),
                    bands=((None, GREEN), (600, RED)),
                ),
                timeseries(
                    "From asking to the first hand-out",
                    "s",
                    "Percentiles, of the loans to which a task went at that time.",
                    *quantiles("kestrel_flock_hand_out_seconds"),
                    logarithmic=True,
                ),
                latency(
                    "From asking to the first hand-out",
                    "Of the loans to which a task went at that time.",
                    "kestrel_flock_hand_out_seconds",
                    width=16,
                ),
                timeseries(
                    "Loans and those cut off",
                    "short",
                    "Open loans, and those of them whose other pool cannot be reached.",
                    by("kestrel_flock_loans", "direction"),
                    Query(
                        "sum by (direction) (kestrel_flock_cut_off_loans{%m})",
                        "{{direction}}, cut off",
                    ),
                ),
            ],
        ),
        Row(
            "Guests",
            [
                timeseries(
                    "Tasks of other pools here",
                    "ops",
                    "By what became of them. given-back: their home ended them or has them run "
                    "again, because own tasks came first, or nothing could start them. refused: "
                    "by a rule.",
                    per_second("kestrel_flock_guests_total", "event"),
                    colours=_GUESTS,
                    width=12,
                ),
                bars(
                    "In this range",
                    "short",
                    "The same, counted.",
                    Query(
                        "sum by (event) (increase(kestrel_flock_guests_total{%m}[$__range]))",
                        "{{event}}",
                    ),
                    steps=((None, BLUE),),
                    width=6,
                ),
                timeseries(
                    "Processors that guests used",
                    "short",
                    "Processor time of guests, counted when they end.",
                    per_second("kestrel_flock_guest_cpu_seconds_total"),
                    width=6,
                ),
                timeseries(
                    "Files that go home",
                    "ops",
                    "What guests have left, to the file share of their home. retried: a try "
                    "failed; failed: given up, and the task has failed at home.",
                    per_second("kestrel_flock_files_home_total", "outcome"),
                    colours={"moved": GREEN, "retried": YELLOW, "failed": RED},
                    width=12,
                ),
                timeseries(
                    "Bytes that go home",
                    "Bps",
                    "What is moved to the file shares of other pools.",
                    per_second("kestrel_flock_files_home_bytes_total"),
                    width=12,
                ),
            ],
        ),
    ],
)
