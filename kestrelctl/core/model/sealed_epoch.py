"""Tells which of two managers of a pool is the older one, by an epoch that it cannot deny.

A manager tells each worker its epoch, sealed with the secret of the pool's store. Workers repeat it
as it is when they say hello, whichever manager is there then. A manager that is shown a higher
epoch of its own pool is the older one: its store was left behind, and the pool went on from a copy
of it. It steps back. Workers cannot make such a seal, so no worker deposes a manager by its word.

Source: BLAKE2 as a message authentication code (RFC 7693, 2.9); that the older one yields to a
higher term, as in Raft (Ongaro, Ousterhout: In Search of an Understandable Consensus Algorithm,
5.1).
"""

from __future__ import annotations

from hashlib import blake2b
from hmac import compare_digest
from struct import Struct

#: (term, epoch, mark): the term is that of the store, higher with each restore; the epoch counts
#: the starts of managers on it; the mark is what seals both.
SealedEpoch = tuple[int, int, int]

_packed = Struct(">QQ").pack


class Rank:
    """The rank of one manager among others of its pool.

    Args:
        secret: of the pool's store, `seal.SECRET_BYTES` long, known to nobody else.
        term, epoch: of this manager.

    Attributes:
        sealed: what workers are told of it.
    """

    def __init__(self, secret: bytes, term: int, epoch: int) -> None:
        self._secret = secret
        self.sealed: SealedEpoch = (term, epoch, self._mark(term, epoch))

    def _mark(self, term: int, epoch: int) -> int:
        keyed = blake2b(_packed(term, epoch), key=self._secret, person=b"epoch", digest_size=8)
        return int.from_bytes(keyed.digest(), "big") >> 1  # fits what stores and JSON readers hold

    def is_genuine(self, shown: SealedEpoch) -> bool:
        """Whether a manager of this pool has sealed the epoch that is shown.

        Args:
            shown: each of its numbers from 0 to 2^63 - 1.
        """
        term, epoch, mark = shown
        right = self._mark(term, epoch)
        return compare_digest(right.to_bytes(8, "big"), mark.to_bytes(8, "big"))

    def is_below(self, shown: SealedEpoch) -> bool:
        """Whether it is the epoch of a manager of this pool to which this one has to give way.

        A higher term outranks whatever was counted before it: a store that was left behind may
        have been started any number of times since.
        """
        return shown[:2] > self.sealed[:2] and self.is_genuine(shown)
