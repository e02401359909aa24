"""Groups of workers: by tags, by an expression, by name."""

from __future__ import annotations

from collections.abc import Iterable

from kestrelctl.core.classad.bad_expression import BadExpression
from kestrelctl.core.classad.evaluation import Ad, Expression, is_true
from kestrelctl.core.classad.rules import checked, shown
from kestrelctl.core.classad.syntax import references
from kestrelctl.core.model.names import NAME_RULE, fits, is_name
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.matching_ads import worker_ad
from kestrelctl.core.model.worker.worker_group import WorkerGroup
from kestrelctl.errors import UsageError

#: The most that a group may name of each sort, and the most characters of each name.
MOST_NAMED = 100
MOST_CHARACTERS = 200


def must_be_group(group: WorkerGroup) -> None:
    """Refuses a group that somebody wants if something is wrong with it.

    Raises:
        UsageError: it cannot be one.
    """
    if not is_name(group.name) or group.name != group.name.lower():
        raise UsageError(
            f"{group.name[:80]!r} cannot be the name of a group of workers",
            cause=f"{NAME_RULE}; here only small letters",
        )
    if not (group.tags or group.names or group.where):
        raise UsageError(
            f"the group {group.name} asks for nothing", hint="say --tag, --name or --where"
        )
    for words in (group.tags, group.names):
        if len(words) > MOST_NAMED or any(not 0 < len(w) <= MOST_CHARACTERS for w in words):
            raise UsageError(
                f"the group {group.name} names too much",
                cause=f"up to {MOST_NAMED} tags and names, each of 1 to {MOST_CHARACTERS} signs",
            )
    if group.where:
        _read(group)


def _read(group: WorkerGroup) -> Expression:
    try:
        for node in references(checked(group.where)):
            if node.scope not in ("", "my"):
                raise BadExpression("for a group there is no other side", node.start)
        return Expression(group.where)
    except BadExpression as mistake:
        raise UsageError(
            f"the group {group.name} cannot be told by that expression",
            cause=shown(group.where, mistake),
        ) from None


class WorkerGroups:
    """All groups of a pool."""

    def __init__(self, groups: Iterable[WorkerGroup] = ()) -> None:
        self._groups: dict[str, tuple[WorkerGroup, Expression | None]] = {}
        for group in groups:
            self.put(group)

    def put(self, group: WorkerGroup) -> None:
        """Makes a group, or replaces the one of that name.

        Raises:
            UsageError: it cannot be one.
        """
        must_be_group(group)
        self._groups[group.name] = (group, _read(group) if group.where else None)

    def remove(self, name: str) -> None:
        """Forgets a group."""
        del self._groups[name]

    @property
    def all(self) -> list[WorkerGroup]:
        """Every group, by name."""
        return [group for _, (group, _) in sorted(self._groups.items())]

    def of(self, worker: str, ad: WorkerAd) -> tuple[str, ...]:
        """The names of the groups that a worker is in, in order.

        A worker is not in a group whose expression comes to anything but true for it.
        """
        found, shown = [], None
        for name, (group, where) in sorted(self._groups.items()):
            if not _may_be_in(group, worker, ad):
                continue
            if where is not None:
                shown = shown or Ad(worker_ad(ad, worker))  # once for all: it takes the time
                if not is_true(where.evaluate(shown)):
                    continue
            found.append(name)
        return tuple(found)


def _may_be_in(group: WorkerGroup, worker: str, ad: WorkerAd) -> bool:
    """Whether a worker has the tags and the name; the expression may say otherwise."""
    if not {tag.upper() for tag in group.tags} <= {tag.upper() for tag in ad.tags}:
        return False
    return not group.names or any(fits(glob, worker) for glob in group.names)
