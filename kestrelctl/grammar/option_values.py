"""The values of options that a program gives, checked as those of a command line are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from kestrelctl.errors import UsageError
from kestrelctl.grammar.job_options import OPTIONS
from kestrelctl.grammar.nearest import did_you_mean
from kestrelctl.grammar.option import (
    Choice,
    Command,
    Decimal,
    Flag,
    JobNames,
    LastJob,
    Option,
    Pairs,
    Parsed,
    Ranges,
    Whole,
)


def option_values(given: Mapping[str, Any], last: LastJob) -> dict[str, Any]:
    """Returns the value of each option of `submit`, by `Option.dest`.

    Args:
        given: the values that are set, by `Option.dest`: numbers, texts, booleans, lists of words,
            mappings for pairs; None is as if it were not there.
        last: asks for the id of the latest job.

    Raises:
        UsageError: there is no such option, or a value is none of its kind.
    """
    known = _known()
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known)
            raise UsageError(f"there is no option {name!r}", hint=hint or None)
    return _unset_values() | {
        name: _value(known[name], value, last) for name, value in given.items() if value is not None
    }


@cache
def _known() -> dict[str, Option]:
    return {option.dest: option for option in OPTIONS}


@cache
def _unset_values() -> dict[str, Any]:
    """The values of all options where none is given; a program may submit thousands of jobs."""
    return {name: _value(option, None, _nobody) for name, option in _known().items()}


def _nobody() -> int:
    raise AssertionError("where no option is given, none means the latest job")


def _value(option: Option, given: Any, last: LastJob) -> Any:
    kind = option.value
    if isinstance(kind, JobNames):
        words = tuple(map(_word, _several(given)))
        return kind.parse(words if option.repeats else next(iter(words), None), last)
    if isinstance(kind, Ranges):
        words = tuple(map(_word, _several(given)))
        return kind.parse(",".join(words)) if words else None
    if given is None:
        return _unset(option)
    match kind:
        case Flag():
            return _is(option, given, bool)
        case Whole(least=least, most=most):
            number = _is(option, given, int)
            if number < least or (most is not None and number > most):
                upto = "or more" if most is None else f"to {most:,}"
                raise _wrong(option, given, f"a whole number, {least} {upto}")
            return number
        case Decimal(least=least):
            amount = float(_is(option, given, int, float))
            if not least <= amount < float("inf"):
                raise _wrong(option, given, f"a number, {least:g} or more")
            return amount
        case Choice(words=words, made=made):
            if str(given) not in words:
                raise _wrong(option, given, f"one of {', '.join(words)}")
            return made(str(given))
        case Command(parse=parse):
            return parse(given if isinstance(given, str) else tuple(map(_word, _several(given))))
        case Parsed(parse=parse):
            return parse(given if isinstance(given, str) else _joined(given))
        case Pairs():
            pairs = given.items() if isinstance(given, Mapping) else None
            return tuple(kind.pair(*each) for each in pairs) if pairs is not None else _words(given)
    return _words(given) if option.repeats else _is(option, given, str)


def _unset(option: Option) -> Any:
    unset, kind = option.unset, option.value
    if isinstance(kind, Flag):
        return bool(unset)
    if isinstance(kind, Choice) and unset is not None:
        return kind.made(unset)
    return kind.parse(unset) if isinstance(kind, Parsed) and unset is not None else unset


def _is(option: Option, given: Any, *kinds: type) -> Any:
    if isinstance(given, kinds) and (bool in kinds or not isinstance(given, bool)):
        return given
    raise _wrong(option, given, f"of type {' or '.join(kind.__name__ for kind in kinds)}")


def _wrong(option: Option, given: Any, wanted: str) -> UsageError:
    return UsageError(f"{option.dest} cannot be {str(given)[:80]!r}", hint=f"it is {wanted}")


def _several(given: Any) -> tuple[Any, ...]:
    if given is None:
        return ()
    several = isinstance(given, Iterable) and not isinstance(given, str | bytes)
    return tuple(given) if several else (given,)


def _words(given: Any) -> tuple[str, ...]:
    return tuple(map(_word, _several(given)))


def _word(given: Any) -> str:
    if given is None or isinstance(given, bytes):
        raise UsageError(f"{given!r} is no text", hint="give a text, a path or a number")
    return given if isinstance(given, str) else str(given)


def _joined(given: Any) -> Any:
    """Writes several values as one text, such as sizes; a number as it is."""
    return ",".join(map(str, given)) if isinstance(given, list | tuple) else given
