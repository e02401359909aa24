"""The place of a pool on the ring of ids, and the distances between ids."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256

from kestrelctl.protocol.pools import DIGITS

DIGIT_BITS = 4
ID_BITS = DIGITS * DIGIT_BITS
_RING = 1 << ID_BITS
_LARGEST_DIGIT = (1 << DIGIT_BITS) - 1


@lru_cache(maxsize=65_536)
def pool_id(domain: str) -> int:
    """The id of a pool: it follows from the domain, so that nobody chooses its place at will."""
    return int.from_bytes(sha256(domain.encode()).digest()[: ID_BITS // 8])


def shared_digits(one: int, other: int) -> int:
    """Counts the equal digits with which two ids begin."""
    return (ID_BITS - (one ^ other).bit_length()) // DIGIT_BITS


def digit(number: int, place: int) -> int:
    """One digit of an id; place 0 is the first."""
    return number >> (ID_BITS - DIGIT_BITS * (place + 1)) & _LARGEST_DIGIT


def clockwise(start: int, end: int) -> int:
    """Returns the distance from one id to another in the direction in which ids grow."""
    return (end - start) % _RING


def between(one: int, other: int) -> int:
    """Returns the distance between two ids, the short way round."""
    way = (other - one) % _RING
    return min(way, _RING - way)
