"""The intervals at which the overlay looks after itself."""

from __future__ import annotations

import msgspec


class OverlaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the overlay; minutes are those of the flock.

    Pools notice at once what bounces; pings are for pools that fall silent behind a dead network.

    Attributes:
        minute_seconds: the length of a minute of the flock.
        answer_seconds: a pool that has not answered after this time is asked again, or is silent.
            It depends on networks, and is no part of a minute.
        tries: a pool in the tables that leaves so many pings in a row unanswered is lost.
        candidate_tries: a pool known by hearsay that leaves so many unanswered is not there.
        leaf_minutes: the interval in which each leaf is to give a sign of life; for the nearest on
            each side: a minute.
        table_minutes: the same for each pool of the routing table.
        exchange_minutes: the interval at which one of the leaves is asked for its leaves.
        walk_minutes: the interval at which the way to the own id is walked again, from anywhere in
            the table: it fills slots, finds nearer pools, and joins what fell apart.
        retry_minutes: the interval at which one of the lost pools is tried again.
        lonely_minutes: the same if all are lost, or none was met yet: the own server may only now
            be open to others, and a pool that joins is to be used within a minute.
        missing_minutes: the time for which a lost pool is tried again.
        acquaintance_minutes: the time for which the nearness of a pool in no table is remembered.
        young_minutes: the time for which a pool that has joined walks every minute, from pools that
            are near.
        young_samples: the number of pools that it tries in each of these minutes only because they
            may be nearer than those that it knows.
        sample_minutes: the interval at which it tries one such pool afterwards.
        pings_per_minute: the most pools known by hearsay that are tried in a minute.
    """

    minute_seconds: float = 60.0
    answer_seconds: float = 5.0
    tries: int = 3
    candidate_tries: int = 2
    leaf_minutes: int = 5
    table_minutes: int = 30
    exchange_minutes: int = 5
    walk_minutes: int = 15
    retry_minutes: int = 10
    lonely_minutes: float = 1 / 6
    missing_minutes: int = 1440
    acquaintance_minutes: int = 120
    pings_per_minute: int = 100
    young_minutes: int = 10
    young_samples: int = 6
    sample_minutes: int = 5
