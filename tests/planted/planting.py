"""Plants a defect into a private copy of `kestrelctl`, and sees whether a test finds it."""

from __future__ import annotations

import compileall
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from functools import cache
from hashlib import sha256
from importlib.util import cache_from_source
from pathlib import Path
from time import perf_counter
from typing import TypeVar
from zlib import crc32

import c_source
import inside
import msgspec
from anchors import Sources, dotted

TESTS = Path(__file__).parents[1]
CHECKOUT = TESTS.parent
#: The packages that are copied, and where each is imported from.
PACKAGES = {
    "kestrelctl": CHECKOUT,
    "kestrel_experiments": CHECKOUT / "experiments",
    "kestrel_worlds": CHECKOUT / "experiments",
}
#: Where our programs in C lie, and what builds them.
C_SOURCES = Path("kestrelctl/worker/launch")
C_BUILDER = "kestrelctl.worker.launch.native_program"
LIST = Path(__file__).with_name("defects.toml")

#: The ordinary check plants a twelfth of the list that is not always planted, the full one a third.
PARTS = {"twelfth": 12, "third": 3, "all": 1}
#: So many are drawn to measure how much a check finds.
SAMPLE = 100
#: A run of tests takes no longer for each of them, on however busy a machine.
HANGS_SECONDS = 60.0


#: What tests import, and takes longer than most of them. Only what is installed can be named here:
#: the process that is forked has no other path (`multiprocessing.forkserver.main`, until 3.14).
NEEDED = (
    "click", "hypothesis", "msgspec", "prometheus_client", "psutil", "pytest",
    "pytest_asyncio.plugin", "rich.console",
)  # fmt: skip

#: A place in a module, as `anchors` gives it: of a statement, or of an entry of a table.
Place = TypeVar("Place")


class Defect(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that could be wrong with Kestrel.

    Attributes:
        name: what is broken, in words.
        function: the qualified name of the function or class in which it is, or `<module>`.
        statement: what stands there exactly once, as `ast.unparse` prints it: one or several, or
            the header of a compound one (see `anchors.fragment`).
        entry: instead of a statement, an entry of a table in one: an element, or a key and its
            value. Other entries may come and go.
        part: a text that is in `statement` or `entry` exactly once; empty: all of it.
        instead: what replaces the part.
        found_by: the test that must find it, as pytest names it, below `tests`.
        module: the end of the module's name, if another one has such a function with such a
            statement; as short as it can be. The name of the file, if it is one in C: there a
            statement is any part of the function's text, and white space does not count.
        always: every check plants it.
    """

    name: str
    function: str
    instead: str
    found_by: str
    statement: str = ""
    entry: str = ""
    part: str = ""
    module: str = ""
    always: bool = False

    @property
    def file(self) -> str:
        """The test module, below `tests`."""
        return self.found_by.partition("::")[0]

    @property
    def kind(self) -> str:
        """What kind of test finds it."""
        return self.found_by.partition("/")[0]

    @property
    def anchor(self) -> str:
        """What the source is searched for."""
        return self.statement or self.entry

    @property
    def in_c(self) -> bool:
        """Whether it is one of our programs in C that it changes."""
        return self.module.endswith(".c")


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


def due(chosen: list[Defect], parts: int, turn: int) -> list[Defect]:
    """Those that a commit plants: some always, and one of so many parts of the others.

    Args:
        turn: the number of the commit.
    """
    return [
        defect
        for defect in chosen
        if defect.always or crc32(defect.name.encode()) % parts == turn % parts
    ]


def sample(chosen: list[Defect]) -> list[Defect]:
    """The same `SAMPLE` of them each time; a longer list has most of those of a shorter one."""
    drawn = sorted(chosen, key=lambda defect: sha256(defect.name.encode()).digest())
    return drawn[:SAMPLE]


def copy(to: Path) -> Path:
    """A compiled copy of the packages as they are; returns the directory to import them from."""
    for package, place in PACKAGES.items():
        shutil.copytree(place / package, to / package)
    compileall.compile_dir(to, quiet=2)
    return to


@cache
def sources() -> Sources:
    """The packages as they are, read once."""
    return Sources(
        {
            file.relative_to(place).as_posix(): file.read_text(encoding="utf-8")
            for package, place in PACKAGES.items()
            for file in sorted((place / package).rglob("*.py"))
        }
    )


def changed_source(defect: Defect) -> tuple[Path, str]:
    """The module that a defect changes, below where it is imported from, and its source with it.

    Raises:
        CannotBePlanted: the statement is not there exactly once, its part is not in it exactly
            once, or what stands there instead is not Python.
    """
    if defect.in_c:
        return _changed_c(defect)
    if bool(defect.statement) == bool(defect.entry):
        raise CannotBePlanted(f"{defect.name}: it has to have a statement or an entry")
    try:
        path, changed = _with_statement(defect) if defect.statement else _with_entry(defect)
    except SyntaxError as error:
        raise CannotBePlanted(f"{defect.name}: {error}") from error
    try:
        sources().module(path).check_changed(changed)
    except SyntaxError as error:
        raise CannotBePlanted(f"{defect.name}: {path} is not Python with it: {error}") from error
    return Path(path), changed


def _with_statement(defect: Defect) -> tuple[str, str]:
    found = sources().places(defect.function, defect.statement, defect.module)
    path, place = _only(defect, found)
    return path, sources().module(path).replaced(place, defect.statement, _instead(defect))


def _with_entry(defect: Defect) -> tuple[str, str]:
    found = sources().entries(defect.function, defect.entry, defect.module)
    path, place = _only(defect, found)
    return path, sources().module(path).with_entry(place, _instead(defect))


def _only(defect: Defect, found: list[tuple[str, Place]]) -> tuple[str, Place]:
    if len(found) != 1:
        where = ", ".join(sorted(dotted(path) for path, _ in found)) or "nowhere"
        raise CannotBePlanted(
            f"{defect.name}: this stands {len(found)} times ({where}) in {defect.function}, "
            f"not once: {defect.anchor}"
        )
    return found[0]


def _changed_c(defect: Defect) -> tuple[Path, str]:
    """As `changed_source`, for a program in C; whether it is C is known when it is built."""
    path = C_SOURCES / defect.module
    source = (CHECKOUT / path).read_text(encoding="utf-8")
    found = c_source.places(source, defect.function, defect.statement)
    if len(found) != 1:
        raise CannotBePlanted(
            f"{defect.name}: this stands {len(found)} times in {defect.function} of"
            f" {defect.module}, not once: {defect.statement}"
        )
    [(first, last)] = found
    return path, source[:first] + _instead(defect) + source[last:]


def _instead(defect: Defect) -> str:
    """What stands in place of the whole statement."""
    part = defect.part or defect.anchor
    if (times := defect.anchor.count(part)) != 1:
        raise CannotBePlanted(f"{defect.name}: the statement holds {times} times: {part}")
    return defect.anchor.replace(part, defect.instead)


def _built(defect: Defect, to: Path) -> None:
    """Builds the programs in C of a copy anew, of which one has a defect."""
    compiled = to / C_SOURCES / "compiled"
    shutil.rmtree(compiled, ignore_errors=True)
    done = subprocess.run(
        [sys.executable, "-m", C_BUILDER], cwd=to, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise CannotBePlanted(f"{defect.name}: it cannot be built with it: {done.stderr}")


def plant(defect: Defect, sound: Path, to: Path) -> Path:
    """A copy of a copy with a defect; returns the directory to import it from.

    Only what is changed takes room and has to be compiled: all else is the same files.

    Raises:
        CannotBePlanted: see `changed_source`.
    """
    relative, changed = changed_source(defect)
    for package in PACKAGES:
        shutil.copytree(sound / package, to / package, copy_function=os.link)
    if not defect.in_c:
        Path(cache_from_source(str(to / relative))).unlink(missing_ok=True)
    (to / relative).unlink()
    (to / relative).write_text(changed, encoding="utf-8")
    if defect.in_c:
        _built(defect, to)
    return to


def warm() -> multiprocessing.context.ForkServerContext:
    """Where processes are forked that have imported what tests need, and nothing of the package."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(NEEDED))
    return context


def run(copied: Path, tests: list[str], *, to_the_end: bool = False) -> Found:
    """Runs tests against a copy of the package, in a process of their own.

    Args:
        copied: the directory to import it from.
        tests: as pytest names them, below `tests`.
        to_the_end: also after a first failure.
    """
    paths = [str(TESTS / test) for test in tests]
    context = warm()
    started = perf_counter()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as room:
        receiver, sender = context.Pipe(duplex=False)
        arguments = (str(CHECKOUT), str(copied), paths, room, sender, to_the_end)
        process = context.Process(target=inside.main, args=arguments)
        process.start()
        sender.close()
        try:
            if not receiver.poll(HANGS_SECONDS * len(tests)):
                return Found([], 0, f"it hangs: {' '.join(tests)}")
            found = msgspec.json.decode(receiver.recv_bytes(), type=Found)
        except EOFError:
            return Found([], 0, Path(room, "said").read_text(errors="replace")[-4000:] or "it died")
        finally:
            receiver.close()
            process.kill()
            process.join()
            process.close()
    return msgspec.structs.replace(found, seconds=perf_counter() - started)
