"""Plants a defect into a private copy of `kestrelctl`, and sees whether a test finds it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from time import perf_counter
from zlib import crc32

import msgspec

TESTS = Path(__file__).parents[1]
CHECKOUT = TESTS.parent
PACKAGE = "kestrelctl"
LIST = Path(__file__).with_name("defects.toml")
INSIDE = Path(__file__).with_name("inside.py")

#: The part of the list that is not always planted is spread over so many days.
DAYS = 3
#: A run of tests takes no longer, on however busy a machine.
HANGS_SECONDS = 60.0


class Defect(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that could be wrong with Kestrel.

    Attributes:
        name: what is broken, in words.
        module: where, without the package's name.
        text: source text that is there exactly once.
        instead: what replaces it.
        found_by: the test that must find it, as pytest names it, below `tests`.
        always: it is planted every day.
    """

    name: str
    module: str
    text: str
    instead: str
    found_by: str
    always: bool = False

    @property
    def file(self) -> str:
        """The test module, below `tests`."""
        return self.found_by.partition("::")[0]

    @property
    def kind(self) -> str:
        """What kind of test finds it."""
        return self.found_by.partition("/")[0]


class Found(msgspec.Struct, frozen=True):
    """What came of running tests against a copy.

    Attributes:
        failed: what failed, with the words of the failure.
        passed: how many tests passed.
        broken: why this says nothing about the defect; empty if it does.
        seconds: how long it took.
    """

    failed: list[tuple[str, str]]
    passed: int
    broken: str = ""
    seconds: float = 0.0


class CannotBePlanted(Exception):
    """The list does not fit the source any more."""


def defects() -> list[Defect]:
    """All of them, in the order of the list."""
    listed = tomllib.loads(LIST.read_text(encoding="utf-8"))["defect"]
    return msgspec.convert(listed, list[Defect])


def due(chosen: list[Defect], day: int) -> list[Defect]:
    """Those that are planted on a day: some always, each of the others every `DAYS` days."""
    return [
        defect
        for defect in chosen
        if defect.always or crc32(defect.name.encode()) % DAYS == day % DAYS
    ]


def copy(to: Path) -> Path:
    """A copy of the package as it is; returns the directory to import it from.

    Compiled modules come along, so that only what is changed has to be compiled.
    """
    shutil.copytree(CHECKOUT / PACKAGE, to / PACKAGE)
    return to


def changed_source(defect: Defect) -> tuple[Path, str]:
    """The module that a defect changes, relative to the checkout, and its source with the defect.

    Raises:
        CannotBePlanted: there is no such module, or the text is not there exactly once.
    """
    relative = Path(PACKAGE, *defect.module.split(".")).with_suffix(".py")
    if not (CHECKOUT / relative).exists():
        raise CannotBePlanted(f"{relative} does not exist (any more)")
    source = (CHECKOUT / relative).read_text(encoding="utf-8")
    times = source.count(defect.text)
    if times != 1:
        raise CannotBePlanted(f"{relative} holds this text {times} times, not once: {defect.text}")
    return relative, source.replace(defect.text, defect.instead)


def plant(defect: Defect, to: Path) -> Path:
    """A copy of the package with a defect; returns the directory to import it from.

    Raises:
        CannotBePlanted: see `changed_source`.
    """
    relative, changed = changed_source(defect)
    compile(changed, str(relative), "exec")
    copy(to)
    (to / relative).write_text(changed, encoding="utf-8")
    return to


def run(copied: Path, tests: list[str]) -> Found:
    """Runs tests against a copy of the package, in an interpreter of their own.

    Args:
        copied: the directory to import it from.
        tests: as pytest names them, below `tests`; the first failure ends it.
    """
    paths = [str(TESTS / test) for test in tests]
    started = perf_counter()
    try:
        ended = subprocess.run(
            [sys.executable, str(INSIDE), str(CHECKOUT), *paths],
            cwd=copied,
            capture_output=True,
            text=True,
            timeout=HANGS_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Found([], 0, f"it hangs: {' '.join(tests)}")
    try:
        found = msgspec.json.decode(ended.stdout.rpartition("\n")[2], type=Found)
    except msgspec.DecodeError:
        return Found([], 0, (ended.stdout + ended.stderr)[-4000:])
    return msgspec.structs.replace(found, seconds=perf_counter() - started)
