"""What stands for a pool's queue and machines in a simulated flock: a model, or the core itself."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from kestrelctl.protocol.flock import LentClass
from kestrelctl.simulate.flocks.pool_model import Neighbourhood


class SimulatedPool(Protocol):
    """`PoolModel` says what each of these is."""

    number: int
    machines: int
    around: Neighbourhood
    waits_since: float | None
    done: int
    killed: int
    ran_at: dict[int, int]
    sum_wait: float
    most_wait: float
    last_end: float

    @property
    def states(self) -> Collection[int]: ...
    @property
    def guests(self) -> Collection[Any]: ...
    @property
    def guests_of(self) -> Mapping[int, int]: ...
    @property
    def free(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def oldest(self) -> float | None: ...

    def waiting_since(self, moment: float) -> int: ...
    def fits(self, pool: str, cls: LentClass) -> bool: ...
    def meet(self, pools: Sequence[Any], far: Sequence[float], around: Neighbourhood) -> None: ...
    def offered(self, lender: int, machines: int) -> None: ...
    def reclaim(self, machines: int) -> None: ...


class FailingPool(SimulatedPool, Protocol):
    """One that can also be gone for a while: a model, for nothing of a core is stored."""

    def fail(self, notice_seconds: float) -> None: ...
    def recover(self) -> None: ...
