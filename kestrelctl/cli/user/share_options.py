"""The options that `user set` and `group set` have in common, and how bounds are shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import click
from msgspec import UNSET, UnsetType

from kestrelctl.core.model.files.byte_limit import AS_FOR_ALL, ByteLimit, problem_with_byte_limit
from kestrelctl.core.model.share_change import ShareChange, problem_with_weight
from kestrelctl.core.model.worker.assets import amounts, describe
from kestrelctl.errors import UsageError
from kestrelctl.grammar.asset_words import limited_assets
from kestrelctl.grammar.quantities import parse_size, size

F = TypeVar("F", bound=Callable[..., object])


def parse_bound(text: str) -> int | None:
    """Reads a number of tasks; None for `none`."""
    if text.strip() == "none":
        return None
    if not text.strip().isdecimal() or len(text.strip()) > 18:
        raise UsageError(f"{text!r} is no number of tasks", hint="write 0 or more, or `none`")
    return int(text)


def parse_byte_bound(text: str) -> int | None:
    """Reads a number of bytes; None for `none`.

    Raises:
        UsageError: it is no size, or more than any sum of sizes.
    """
    if text.strip() == "none":
        return None
    size_bytes = parse_size(text)
    if problem := problem_with_byte_limit("a limit", size_bytes):
        raise UsageError(problem)
    return size_bytes


def parse_byte_limit(text: str) -> ByteLimit:
    """Reads the same, or `default` for the limit of all users."""
    return AS_FOR_ALL if text.strip() == AS_FOR_ALL else parse_byte_bound(text)


def share_options(command: F) -> F:
    """Adds `--weight`, `--max-running`, `--max-queued` and `--limit` to a command."""
    for option in (
        click.option(
            "--limit",
            "limits",
            multiple=True,
            metavar="ASSET=AMOUNT",
            help="Amount of an asset that may be in use at once: gpus=4; `none` is no limit; "
            "repeatable.",
        ),
        click.option(
            "--max-queued",
            metavar="N",
            help="Number of tasks that may wait or run; `none` is no limit.",
        ),
        click.option(
            "--max-running",
            metavar="N",
            help="Number of tasks that may be at workers at once; `none` is no limit.",
        ),
        click.option(
            "--weight",
            type=float,
            metavar="W",
            help="Weight of the share of the pool: 2 gets twice as much as 1.  [1 at first]",
        ),
    ):
        command = option(command)
    return command


def share_change(
    weight: float | None, max_running: str | None, max_queued: str | None, limits: tuple[str, ...]
) -> ShareChange:
    """Reads these options.

    Raises:
        UsageError: one of them makes no sense.
    """
    if weight is not None and (problem := problem_with_weight(weight)) is not None:
        raise UsageError(problem)
    return ShareChange(
        weight=UNSET if weight is None else weight,
        max_running=_bound(max_running),
        max_queued=_bound(max_queued),
        limits=limited_assets(limits),
    )


def _bound(text: str | None) -> int | UnsetType | None:
    return UNSET if text is None else parse_bound(text)


def bound(number: int | None) -> str:
    """Writes a bound as a table shows it; empty for none."""
    return "" if number is None else f"{number:,}"


def byte_bound(size_bytes: int | None) -> str:
    """Writes a bound on bytes as a table shows it; empty for none."""
    return "" if size_bytes is None else size(size_bytes) or "0 B"


def limits_shown(limits: Mapping[str, float]) -> str:
    """Writes limits: `4 gpus, 204800 MiB memory`; empty for none."""
    zeros = dict.fromkeys(limits, 0)
    return ", ".join(describe(name, n) for name, n in sorted((zeros | amounts(limits)).items()))


def usage_shown(seconds: float) -> str:
    """Writes weighted hours: `12.50 h`, `1,250 h`."""
    hours = seconds / 3600
    return f"{hours:.2f} h" if hours < 100 else f"{hours:,.0f} h"
