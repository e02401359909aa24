"""Reads the results of earlier benches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from kestrelctl.bench.result import SCHEMA, BenchResult
from kestrelctl.errors import UsageError

T = TypeVar("T")


class _Head(msgspec.Struct):
    schema: int = 1


def read_result(path: Path) -> BenchResult:
    """Reads the result in a file (of `-o json`), or in a directory that `--report` made.

    Raises:
        UsageError: it cannot be read, is no result, or has another schema than this version knows.
    """
    file = path / "result.json" if path.is_dir() else path
    result = read_saved(
        file,
        BenchResult,
        SCHEMA,
        "the result of a bench",
        "give a file made by `kestrelctl bench -o json`, or a directory of its --report",
    )
    if not result.runs:
        raise UsageError(f"{file} holds no runs")
    return result


def read_saved(file: Path, kind: type[T], known: int, what: str, hint: str) -> T:
    """Reads the file that a bench or an experiment has saved.

    Args:
        kind: a struct with a field `schema`.
        known: the schema that this version reads.
        what: what the file should be, for the error.
        hint: says where such a file comes from, for the error.

    Raises:
        UsageError: it cannot be read, is something else, or has another schema.
    """
    try:
        data = file.read_bytes()
        schema = msgspec.json.decode(data, type=_Head).schema
        if schema != known:
            raise UsageError(
                f"{file} has schema {schema}; this version reads schema {known}",
                hint="read it with the version of kestrelctl that wrote it",
            )
        return msgspec.json.decode(data, type=kind)
    except OSError as error:
        raise UsageError(f"{file} cannot be read", cause=error.strerror) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} is not {what}", cause=str(error), hint=hint) from None


def labels(paths: Sequence[Path]) -> list[str]:
    """Names each place: by its file or directory, or by its whole path where two are alike.

    A place that occurs again gets a number behind its name.
    """
    short = [(path.parent if path.name == "result.json" else path).resolve() for path in paths]
    names = [path.stem if path.suffix == ".json" else path.name for path in short]
    names = [
        name if names.count(name) == 1 else str(path)
        for name, path in zip(names, paths, strict=True)
    ]
    return [
        name if names.index(name) == place else f"{name} ({names[: place + 1].count(name)})"
        for place, name in enumerate(names)
    ]
