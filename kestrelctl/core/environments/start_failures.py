"""Starts that failed: the next one of the same kind on the same host waits, longer each time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kestrelctl.core.pacing.backoff import doubled_seconds

#: The pause after the first failure, and the longest.
FIRST_PAUSE_SECONDS = 10.0
LONGEST_PAUSE_SECONDS = 600.0


class StartFailure(NamedTuple):
    """The starts in a row that failed, and the latest of them.

    Attributes:
        times: how many starts in a row have failed.
        at: when the latest did, in seconds since the epoch.
        why: what went wrong.
    """

    times: int
    at: float
    why: str

    @property
    def next_try_at(self) -> float:
        """The time until which nothing is started there."""
        return self.at + doubled_seconds(FIRST_PAUSE_SECONDS, self.times - 1, LONGEST_PAUSE_SECONDS)


class StartFailures:
    """Failures by class and host, as long as no start there has succeeded since."""

    def __init__(self) -> None:
        self._latest: dict[tuple[str, str], StartFailure] = {}

    def failed(self, of: str, host: str, at: float, why: str) -> None:
        """Notes that an environment of a class did not start on a host."""
        before = self._latest.get((of, host))
        times = before.times if before is not None else 0
        self._latest[of, host] = StartFailure(times + 1, at, why)

    def succeeded(self, of: str, host: str) -> None:
        """Forgets what failed there before."""
        self._latest.pop((of, host), None)

    def forget_host(self, host: str) -> None:
        """Forgets a host that has gone."""
        for pair in [pair for pair in self._latest if pair[1] == host]:
            del self._latest[pair]

    def latest(self, of: str, host: str) -> StartFailure | None:
        """The failure there, if the latest start failed."""
        return self._latest.get((of, host))

    def of_class(self, of: str) -> list[tuple[str, StartFailure]]:
        """The hosts at which the latest start of a class failed, and what happened."""
        return [(host, found) for (name, host), found in self._latest.items() if name == of]

    def pause_seconds(self, places: Iterable[tuple[str, str]], now: float) -> float | None:
        """The time until a start is tried again, if the latest start at each place has failed.

        Args:
            places: classes, each with a host.

        Returns:
            0 if it may be tried now; None if there is a place at which it has not failed, or no
            place at all.
        """
        next_try_at: list[float] = []
        for place in places:
            found = self._latest.get(place)
            if found is None:
                return None
            next_try_at.append(found.next_try_at)
        return max(0.0, min(next_try_at) - now) if next_try_at else None

    def pausing(self, now: float) -> list[tuple[str, str]]:
        """The classes, each with a host, that are not started there now."""
        return [pair for pair, found in self._latest.items() if now < found.next_try_at]

    def may_start(self, of: str, host: str, now: float) -> bool:
        """Whether the pause after the latest failure is over."""
        found = self._latest.get((of, host))
        return found is None or now >= found.next_try_at
