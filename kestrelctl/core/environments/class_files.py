"""Environment classes as they are written: TOML, a table `[environment.NAME]` for each."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any

from kestrelctl.core.classad.rules import shown
from kestrelctl.core.environments.environment_class import (
    KINDS,
    EnvironmentClass,
    EnvironmentResources,
)
from kestrelctl.core.environments.node_command import MOST_WORD_CHARACTERS, MOST_WORDS
from kestrelctl.core.model.worker.isolation import TAG_PREFIX, is_reserved
from kestrelctl.core.model.worker.own_tags import first_own
from kestrelctl.core.model.worker.significance import problem_with_expression
from kestrelctl.errors import UsageError

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_KEYS = (
    *("kind", "image", "recipe", "tags", "resources", "minimum", "maximum"),
    *("start_seconds", "idle_seconds", "hosts", "runs"),
)
#: The keys that say something of the worker that an environment boots.
_OF_WORKERS = ("tags", "idle_seconds")
#: The kinds that are made in one way only.
_ONLY = {"venv": "recipe", "libvirt": "image"}


def read_classes(
    text: str, file: str, parse_size: Callable[[object], int]
) -> dict[str, EnvironmentClass]:
    """The classes of one file, by name. Recipes are looked for beside it.

    Args:
        file: what it is called, for messages and for the place of recipes.
        parse_size: reads a size such as `2G`; raises UsageError.

    Raises:
        UsageError: something in it is wrong; the message names the file and the key.
    """
    try:
        fields = tomllib.loads(text)
    except ValueError as error:
        raise UsageError(f"{file} is not TOML", cause=str(error)) from None
    except RecursionError:
        raise UsageError(f"{file} cannot be read", cause="it nests too deeply") from None
    for key in fields.keys() - {"environment"}:
        raise UsageError(
            f"{file}: {key} is not known", hint="each class is a table: [environment.NAME]"
        )
    tables = fields.get("environment")
    if not isinstance(tables, dict) or not tables:
        raise UsageError(f"{file} has no environment", hint="begin with [environment.NAME]")
    found = {}
    for name, table in tables.items():
        if not _NAME.fullmatch(name) or not isinstance(table, dict):
            raise UsageError(
                f"{file}: environment.{name} cannot be a class",
                hint="[environment.NAME], of small letters, digits, - and _, 32 at most",
            )
        found[name] = _ClassTable(file, name, table).read(parse_size)
    return found


class _ClassTable:
    def __init__(self, file: str, name: str, table: Mapping[str, Any]) -> None:
        self._file = file
        self._name = name
        self._table = table

    def read(self, parse_size: Callable[[object], int]) -> EnvironmentClass:
        for key in self._table.keys() - set(_KEYS):
            raise self._wrong(key, "there is no such key", f"one of {', '.join(_KEYS)}")
        kind = self._text("kind")
        if kind not in KINDS:
            raise self._wrong("kind", f"{kind!r} is not known", f"one of {', '.join(KINDS)}")
        image, recipe = self._made_of(kind)
        minimum, maximum = self._whole("minimum", 0), self._whole("maximum", 1)
        if maximum < max(1, minimum):
            raise self._wrong("maximum", f"{maximum} are too few", f"at least {max(1, minimum)}")
        return EnvironmentClass(
            name=self._name,
            kind=kind,
            image=image,
            recipe=str(PurePosixPath(self._file).parent / recipe) if recipe else "",
            tags=self._tags(),
            resources=self._resources(parse_size),
            minimum=minimum,
            maximum=maximum,
            start_seconds=self._seconds("start_seconds", EnvironmentClass.start_seconds),
            idle_seconds=self._seconds("idle_seconds", EnvironmentClass.idle_seconds),
            hosts=self._hosts(),
            runs=self._runs(),
        )

    def _made_of(self, kind: str) -> tuple[str, str]:
        image, recipe = self._text("image"), self._text("recipe")
        only = _ONLY.get(kind)
        for key, value in (("image", image), ("recipe", recipe)):
            if value and only not in (None, key):
                raise self._wrong(key, f"{kind} is made of no {key}", f"{only} = …")
        if image and recipe:
            raise self._wrong("recipe", "there is an image, too", "leave one of them away")
        if not image and not recipe and kind != "venv":
            raise self._wrong(only or "image", f"{kind} needs one", f'{only or "image"} = "…"')
        if kind in ("nspawn", "chroot", "libvirt") and image and not image.startswith("/"):
            raise self._wrong("image", f"{image!r} is no whole path", "begin with /")
        if image.startswith("-"):
            raise self._wrong("image", f"{image!r} would be taken for an option", "name an image")
        return image, recipe

    def _tags(self) -> tuple[str, ...]:
        tags = self._table.get("tags", [])
        if not isinstance(tags, list) or not all(
            isinstance(tag, str) and tag and not re.search(r"[\s,\0]", tag) for tag in tags
        ):
            raise self._wrong("tags", "it is no list of words", 'tags = ["science"]')
        own = first_own(tags)
        reserved = own.name if own else next(filter(is_reserved, tags), "")
        if reserved:
            raise self._wrong(
                "tags",
                f"{reserved} is what workers say of themselves",
                f"another word; none that begins with {TAG_PREFIX}",
            )
        return tuple(tags)

    def _resources(self, parse_size: Callable[[object], int]) -> EnvironmentResources:
        table = self._table.get("resources", {})
        if not isinstance(table, dict):
            raise self._wrong("resources", "it is no table", '{ cpus = 2, memory = "2G" }')
        for key in table.keys() - {"cpus", "memory"}:
            raise self._wrong(f"resources.{key}", "there is no such key", "cpus or memory")
        cpus = table.get("cpus", 0.0)
        if not _is_number(cpus) or not (0.001 <= cpus <= 100_000 or "cpus" not in table):
            raise self._wrong("resources.cpus", f"{cpus!r} is no number of processors", "cpus = 2")
        memory = 0
        if "memory" in table:
            try:
                memory = parse_size(table["memory"])
            except UsageError as error:
                why = error.cause or error.message
                raise self._wrong("resources.memory", why, 'memory = "2G"') from None
            if memory <= 0:
                raise self._wrong("resources.memory", "it is nothing", 'memory = "2G"')
        return EnvironmentResources(cpus=float(cpus), memory_bytes=memory)

    def _hosts(self) -> str:
        text = self._text("hosts").strip()
        mistake = problem_with_expression(text) if text else None
        if mistake is not None:
            raise self._wrong("hosts", shown(text, mistake), "an expression about workers")
        return text

    def _runs(self) -> tuple[str, ...]:
        try:
            words = tuple(shlex.split(self._text("runs")))
        except ValueError as error:
            raise self._wrong("runs", str(error), "close each quote") from None
        if len(words) > MOST_WORDS or any(len(word) > MOST_WORD_CHARACTERS for word in words):
            raise self._wrong("runs", "it is too long", "a program of the image that does it")
        for key in _OF_WORKERS:
            if words and key in self._table:
                raise self._wrong(key, "what it runs is no worker of this pool", f"remove {key}")
        return words

    def _text(self, key: str) -> str:
        value = self._table.get(key, "")
        if not isinstance(value, str) or "\0" in value or (key in self._table and not value):
            raise self._wrong(key, f"{value!r} is no text", f'{key} = "…"')
        return value

    def _whole(self, key: str, default: int) -> int:
        value = self._table.get(key, default)
        if type(value) is not int or not 0 <= value <= 100_000:
            raise self._wrong(key, f"{value!r} is no such number", "a whole number from 0")
        return value

    def _seconds(self, key: str, default: float) -> float:
        value = self._table.get(key, default)
        if not _is_number(value) or not 1 <= value <= 30 * 86400:
            raise self._wrong(key, f"{value!r} is no such time", "seconds, from 1 to 30 days")
        return float(value)

    def _wrong(self, key: str, cause: str, hint: str) -> UsageError:
        return UsageError(f"{self._file}: environment.{self._name}: {key}", cause=cause, hint=hint)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
