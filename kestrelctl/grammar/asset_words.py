"""Assets in words: `fpga=2`, `disk=10G`, `gpus=0,1`, `gpus=indexed:0`, `seats=shared:4`, `db=?`."""

from __future__ import annotations

from collections.abc import Iterable

from kestrelctl.core.model.job.exits import MAX_EXIT_CODE
from kestrelctl.core.model.worker.ad import AssetChange
from kestrelctl.errors import UsageError
from kestrelctl.grammar.quantities import parse_capacity, parse_digits, parse_size

ASKED_HINT = "write --asset fpga=1 or --asset scratch=10G"
LIMIT_HINT = "write --limit gpus=4, --limit memory=200G or --limit gpus=none"
OFFERED_HINT = "write fpga=2, gpus=0,1 (ids of units), gpus=indexed:0, seats=shared:4 or db=?"
STATUS_HINT = "write db=? (status 75, EX_TEMPFAIL), or another status: db=?:69"
#: EX_TEMPFAIL of sysexits.h: "temporary failure, indicating something that is not really an error".
NO_MORE_STATUS = 75


def asked_assets(words: Iterable[str]) -> dict[str, float]:
    """Reads what a task asks for: `NAME=AMOUNT` each; the last of a name counts.

    Raises:
        UsageError: a word is not of that form.
    """
    return {
        name: _amount(name, word, value, ASKED_HINT)
        for name, value, word in _pairs(words, ASKED_HINT)
    }


def limited_assets(words: Iterable[str]) -> dict[str, float | None]:
    """Reads how much may be used at once: `NAME=AMOUNT`, or `NAME=none` for any amount.

    Raises:
        UsageError: a word is not of that form, or a name comes twice.
    """
    found: dict[str, float | None] = {}
    for name, value, word in _pairs(words, LIMIT_HINT):
        if name in found:
            raise UsageError(f"{name} is given twice", hint=LIMIT_HINT)
        found[name] = None if value == "none" else _amount(name, word, value, LIMIT_HINT)
    return found


def offered_assets(words: Iterable[str]) -> AssetChange:
    """Reads what a worker has: `NAME=AMOUNT`, `NAME=ID,ID…`, `NAME=indexed:ID…`,
    `NAME=shared:COUNT`, `NAME=?`, `NAME=?:EXIT_STATUS`.

    Raises:
        UsageError: a word is not of that form, or a name comes twice.
    """
    amounts: dict[str, float] = {}
    units: dict[str, tuple[str, ...]] = {}
    shared: dict[str, float] = {}
    unknown: dict[str, int] = {}
    for name, value, word in _pairs(words, OFFERED_HINT):
        if name in amounts.keys() | units.keys() | shared.keys() | unknown.keys():
            raise UsageError(f"{name} is given twice", hint=OFFERED_HINT)
        kind, colon, rest = value.partition(":")
        if kind == "?":
            unknown[name] = _status(word, rest if colon else str(NO_MORE_STATUS))
        elif colon and kind == "shared":
            shared[name] = _amount(name, word, rest, OFFERED_HINT)
        elif (colon and kind == "indexed") or "," in value:
            ids = rest if colon and kind == "indexed" else value
            units[name] = tuple(unit.strip() for unit in ids.split(",") if unit.strip())
        else:
            amounts[name] = _amount(name, word, value, OFFERED_HINT)
    return AssetChange(amounts=amounts, units=units, shared=shared, unknown=unknown)


def _pairs(words: Iterable[str], hint: str) -> Iterable[tuple[str, str, str]]:
    for word in words:
        name, equals, value = word.partition("=")
        if not name.strip() or not equals or not value.strip():
            raise UsageError(f"not an asset: {word!r}", hint=hint)
        yield name.strip(), value.strip(), word


def _status(word: str, value: str) -> int:
    """The exit status that says that there is no more."""
    status = parse_digits(value, MAX_EXIT_CODE)
    if not status:
        raise UsageError(
            f"not an asset of unknown capacity: {word!r}",
            cause=f"a task says that there is no more by an exit status from 1 to {MAX_EXIT_CODE}",
            hint=STATUS_HINT,
        )
    return status


def _amount(name: str, word: str, value: str, hint: str) -> float:
    """An amount, in the asset's unit; `10G` is one of bytes."""
    if name in ("memory", "disk"):
        return float(parse_capacity(value))
    try:
        return float(value) if value.replace(".", "", 1).isdecimal() else float(parse_size(value))
    except UsageError:
        raise UsageError(f"not an amount of an asset: {word!r}", hint=hint) from None
