"""Records of the pool, minute after minute: durable, so that triggers can be tested on them."""

from __future__ import annotations

import logging
import zlib
from collections import deque
from collections.abc import AsyncIterator

import msgspec

from kestrelctl.core.triggers.pool_views import PoolSnapshot
from kestrelctl.core.triggers.recorded_moment import (
    MomentRecorded,
    MomentsDropped,
    RecordedMoment,
    recorded,
)
from kestrelctl.manager.service import Service

log = logging.getLogger(__name__)

#: The most moments that are kept, and the most workers in all of them together.
MOST_MOMENTS = 1_440
MOST_RECORDED_WORKERS = 200_000
#: Moments that are read at once.
_PAGE = 10
#: Fast rather than small: a pool of 1,000 workers takes some ten milliseconds.
_LEVEL = 1

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(RecordedMoment)


class MomentLog:
    """Records the pool."""

    def __init__(self, service: Service) -> None:
        self._service = service
        #: (number, when) of all that are kept, the oldest first.
        self._kept = deque(service.store.moments_kept())

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def since(self) -> float | None:
        """The time of the oldest moment, in seconds since the epoch; None if there is none."""
        return self._kept[0][1] if self._kept else None

    def add(self, snapshot: PoolSnapshot) -> None:
        """Records a moment, but not while the disk is full; the oldest go if they are too many."""
        if self._service.store_error:
            return
        number = self._kept[-1][0] + 1 if self._kept else 1
        packed = zlib.compress(_encoder.encode(recorded(snapshot)), _LEVEL)
        self._service.commits.write([MomentRecorded(number, snapshot.at, packed)])
        self._kept.append((number, snapshot.at))
        most = max(2, min(MOST_MOMENTS, MOST_RECORDED_WORKERS // max(1, len(snapshot.workers))))
        up_to = 0
        while len(self._kept) > most:
            up_to, _ = self._kept.popleft()
        if up_to:
            self._service.commits.write([MomentsDropped(up_to)])

    async def moments(self) -> AsyncIterator[PoolSnapshot]:
        """Yields all moments that are kept, the oldest first, read as they are asked for."""
        after = 0
        while page := await self._service.store.ask(
            lambda read, after=after: read.moments(after=after, limit=_PAGE)  # type: ignore[misc]
        ):
            for each in page:
                after = each.number
                try:
                    yield _decoder.decode(zlib.decompress(each.packed)).snapshot()
                except (msgspec.MsgspecError, zlib.error, UnicodeError) as error:
                    log.error("the moment %s of the pool cannot be read: %s", each.number, error)
