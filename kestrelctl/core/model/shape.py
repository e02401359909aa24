"""What jobs that match alike have in common."""

from __future__ import annotations

from kestrelctl.core.model.assets import Amounts, Natural, amounts, natural
from kestrelctl.core.model.spec import JobSpec


class Shape:
    """What such jobs ask for: amounts of assets, and tags. One object for all jobs that ask alike.

    Attributes:
        requires: tags in upper case, as in the original.
        asked: the request in natural units, as the first of the jobs had it. The others share it:
            ten thousand jobs need no ten thousand dictionaries.
    """

    __slots__ = ("asked", "request", "requires")

    def __init__(
        self, request: Amounts, requires: frozenset[str], asked: Natural | None = None
    ) -> None:
        self.request = request
        self.requires = requires
        self.asked = natural(request) if asked is None else asked


#: What two jobs must agree in to have one shape.
ShapeKey = tuple[tuple[tuple[str, int], ...], frozenset[str]]


def shape_key(spec: JobSpec) -> ShapeKey:
    """The key of a job's shape."""
    request = tuple(sorted(amounts(spec.request).items()))
    return request, frozenset(tag.upper() for tag in spec.requires)
