"""How often the overlay looks after itself."""

from __future__ import annotations

import msgspec


class OverlaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Whatever is counted in minutes is counted in those of the flock.

    Pools notice at once what bounces; asking is for those that fall silent behind a dead network.

    Attributes:
        minute_seconds: what a minute of the flock is.
        answer_seconds: who has not answered after this time is asked again, or is silent. It is a
            matter of networks, and no part of a minute.
        tries: a pool in the tables that leaves so many pings in a row unanswered is lost.
        candidate_tries: a pool that was only heard of, that leaves so many, is not there.
        leaf_minutes: so often each leaf is to give a sign of life; the nearest on each side: every
            minute.
        table_minutes: so often each pool of the routing table.
        exchange_minutes: so often one of the leaves is asked for its leaves.
        walk_minutes: so often the way to the own id is walked again, from anywhere in the table: it
            fills slots, finds nearer pools, and joins what fell apart.
        retry_minutes: so often one of the lost pools is tried again.
        lonely_minutes: so often if all are lost, or none was met yet: the own server may only now
            be open to others, and a pool that joins is to be used within a minute.
        missing_minutes: so long it is.
        acquaintance_minutes: so long it is remembered how near a pool is that is in no table.
        young_minutes: so long a pool that has joined walks every minute, from pools that are near.
        young_samples: so many it tries in each of them only because they may be nearer than those
            that it knows.
        sample_minutes: and afterwards one so often.
        pings_per_minute: so many pools that were only heard of are tried in a minute.
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
