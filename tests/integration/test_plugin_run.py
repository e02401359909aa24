"""One run of a program that is a plugin: whatever it does, a reading, and nothing of it stays."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from kestrelctl.core.properties.reading import PropertyReading
from kestrelctl.worker.plugins.plugin_run import BuiltInRun, run_program


def program(directory: Path, text: str) -> Path:
    place = directory / "plugin"
    place.write_text(f"#!{sys.executable}\n{text}")
    place.chmod(0o755)
    return place


#: What it does, and why there is no value.
WORSE = {
    "dies": ("import os; os.kill(os.getpid(), 9)", "signal 9"),
    "fails": ("import sys; sys.exit('no\\nsuch thing')", "exit status 1: such thing"),
    "floods": ("while True: print('x' * 999)", "more than 4,096 bytes were printed"),
    "complains": (
        "import sys\nwhile True: print('x' * 999, file=sys.stderr)",
        "more than 4,096 bytes were printed",
    ),
    "rubbish": ("print('\\x1b[2J' + '9' * 40)", "not a value of type int"),
    "binary": (
        "import sys; sys.stdout.buffer.write(bytes(range(256)))",
        "what was printed is not UTF-8",
    ),
    "silent": ("", "nothing was printed"),
    "hangs": ("import time; time.sleep(600)", "it took longer than 2 s"),
    "reads": ("input()", "exit status 1: EOFError"),
    "stays": (
        # Its child keeps the pipe open for ever.
        "import os, time\nif os.fork() == 0: time.sleep(600)\nprint(5)",
        "it took longer than 2 s",
    ),
}


@pytest.mark.parametrize("how", WORSE)
async def test_whatever_a_plugin_does_is_a_reading_and_nothing_of_it_stays(
    tmp_path: Path, how: str
) -> None:
    code, why = WORSE[how]
    place = program(tmp_path, code)
    told = await run_program([str(place)], "int", 2.0, at=7.0)
    assert (told.at, told.value) == (7.0, None)
    assert told.missing.startswith(why)
    async with asyncio.timeout(10):
        while any(str(place) in " ".join(words) for words in command_lines()):
            await asyncio.sleep(0.01)


#: It is there, and is what it is to be, before the program ends.
DAEMON = """import os, sys, time
told, tells = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for each in range(3):
            os.close(each)
        if sys.argv[1] == "hidden":
            os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)",
                                       __file__], {})
        os.close(tells)
        time.sleep(600)
    os._exit(0)
os.close(tells)
os.read(told, 1)
print(5)
"""


@pytest.mark.parametrize("how", ["plain", "hidden"])
async def test_a_daemon_that_a_plugin_leaves_ends_with_it_and_none_of_another(
    tmp_path: Path, how: str
) -> None:
    place = program(tmp_path, DAEMON)
    script = f"""
import asyncio, psutil, sys
from kestrelctl.child_program import _children, adopt_orphans, child_program
from kestrelctl.worker.plugins.plugin_run import run_program

async def main():
    adopt_orphans()
    async with child_program(["/bin/sh", "-c", "(setsid sleep 600 & ) ; read x"], {{}},
                             stdin=asyncio.subprocess.PIPE) as other:
        await asyncio.sleep(0.2)
        if {how == "plain"}:
            print((await run_program([{str(place)!r}, "plain"], "int", 20.0, at=7.0)).value)
        for _ in range(500):
            left = [each for each in map(psutil.Process, _children()) if each.status() != "zombie"]
            if len(left) == 2:
                break
            await asyncio.sleep(0.01)  # what was killed takes a moment to end
        print(other.returncode, len(left), flush=True)
    value = (await run_program([{str(place)!r}, {how!r}], "int", 20.0, at=7.0)).value
    print(value, flush=True)
    sys.stdin.read()

asyncio.run(main())
"""
    ran = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert ran.stdin is not None
    assert ran.stdout is not None
    told = [await ran.stdout.readline() for _ in range(3 if how == "plain" else 2)]
    assert told == [b"5\n", b"None 2\n", b"5\n"][-len(told) :]
    async with asyncio.timeout(10):
        while any(str(place) in words for words in command_lines()):
            await asyncio.sleep(0.01)
        while psutil.Process(ran.pid).children(recursive=True):
            await asyncio.sleep(0.01)
    ran.stdin.close()
    await ran.wait()


def command_lines() -> list[list[str]]:
    return [each.info["cmdline"] or [] for each in psutil.process_iter(["cmdline"])]


async def test_a_program_is_told_nothing_of_the_workers_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KESTREL_SECRET", "hush")
    place = program(tmp_path, "import os; print(' '.join(sorted(os.environ)))")
    told = await run_program([str(place)], "str", 10.0, at=7.0)
    assert "PATH" in str(told.value)
    assert "KESTREL_SECRET" not in str(told.value)


async def test_what_is_built_in_and_hangs_is_not_begun_a_second_time() -> None:
    may_end, calls = threading.Event(), []

    def hangs(words: Sequence[str]) -> int:
        calls.append(list(words))
        may_end.wait()
        return 5

    run = BuiltInRun(hangs)
    try:
        assert (await run.run(["a"], "int", 0.05, 1.0)).missing == "it took longer than 0.05 s"
        assert (await run.run(["a"], "int", 0.05, 2.0)).missing == "the reading before hangs"
        assert calls == [["a"]]
    finally:
        may_end.set()
    async with asyncio.timeout(10):
        while (told := await run.run(["b"], "int", 5.0, 3.0)).missing == "the reading before hangs":
            await asyncio.sleep(0.01)
    assert told == PropertyReading(3.0, 5)


async def test_what_is_built_in_and_fails_says_how() -> None:
    def fails(words: Sequence[str]) -> int:
        raise ZeroDivisionError("of all things")

    told = await BuiltInRun(fails).run([], "int", 5.0, 3.0)
    assert told.missing == "ZeroDivisionError: of all things"
