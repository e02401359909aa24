"""Seals: how a worker proves that it was handed the attempts it speaks of.

Attempts under way are not durable, so a manager that was restarted, or that had given a worker up,
cannot look up what it handed out. It gives each span of attempts a keyed hash over the attempts,
their tasks and the worker's account; the worker shows it with what it holds and reports.

Source: BLAKE2 as a message authentication code (RFC 7693, 2.9).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from hmac import compare_digest
from struct import Struct

#: (number, job id, index, n, mark): n attempts with consecutive numbers and indexes.
Seal = tuple[int, int, int, int, int]

#: The size of a pool's secret.
SECRET_BYTES = 32
#: `Seals.offset` is below two to this power: attempt numbers of a new pool begin at a multiple of
#: the numbers of one start.
_OFFSET_BITS = 22

_MARK_BYTES = 8
_packed = Struct(">QQQQ").pack


class Seals:
    """Makes and checks the seals of one pool.

    Args:
        secret: of the pool's store, `SECRET_BYTES` long, known to nobody else.

    Raises:
        ValueError: the secret has another size.

    Attributes:
        offset: is added to the count of the manager's starts, so that a store that begins anew has
            other numbers than the store before it, which workers may still have.
    """

    def __init__(self, secret: bytes) -> None:
        if len(secret) != SECRET_BYTES:
            raise ValueError(f"a secret of {len(secret)} bytes instead of {SECRET_BYTES}")
        self._keyed = blake2b(key=secret, person=b"seal", digest_size=_MARK_BYTES)
        drawn = blake2b(key=secret, person=b"numbers", digest_size=4).digest()
        self.offset = int.from_bytes(drawn, "big") % (1 << _OFFSET_BITS)

    def mark(self, worker: str, number: int, job_id: int, index: int, n: int) -> int:
        """Computes the mark that makes a seal valid.

        Args:
            worker: an address of its account.
        """
        account = worker.partition("/")[0].encode()
        digest = self._keyed.copy()  # cheaper than a new one, which would hash the key again
        digest.update(_packed(number, job_id, index, n) + account)
        return int.from_bytes(digest.digest(), "big") >> 1  # fits what stores and JSON readers hold

    def proven(self, worker: str, seals: Sequence[Seal]) -> Proof:
        """Returns what a worker was handed, as far as it shows valid seals.

        Args:
            worker: an address of its account.
            seals: what it shows; each of the numbers from 0 to 2^63 - 1.
        """
        return Proof(seal for seal in seals if self._is_valid(worker, seal))

    def _is_valid(self, worker: str, seal: Seal) -> bool:
        number, job_id, index, n, mark = seal
        right = self.mark(worker, number, job_id, index, n)
        return compare_digest(right.to_bytes(8, "big"), mark.to_bytes(8, "big"))


class Proof:
    """The attempts that a worker has proven to have been handed."""

    def __init__(self, valid: Iterable[Seal]) -> None:
        self._seals = sorted(valid)
        self._firsts = [number for number, *_ in self._seals]

    def covers(self, number: int, job_id: int, index: int) -> bool:
        """Whether this attempt of this task is among them."""
        place = bisect_right(self._firsts, number) - 1
        if place < 0:
            return False
        first, sealed_job_id, first_index, n, _ = self._seals[place]
        beyond = number - first
        return beyond < n and job_id == sealed_job_id and index == first_index + beyond
