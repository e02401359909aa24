"""What environments have on disk: whole or not at all."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from kestrelctl.errors import KestrelError, MissingTool, TimedOut, UsageError
from kestrelctl.worker.environments import tool_run
from kestrelctl.worker.environments.environment_files import (
    FREE_BYTES,
    FRESH_SECONDS,
    UNUSED_SECONDS,
    EnvironmentFiles,
    read_recipe,
)
from kestrelctl.worker.environments.tool_run import run_tool


class Usage(NamedTuple):
    """Of a disk, as `shutil.disk_usage` tells it."""

    total: int
    used: int
    free: int


@pytest.fixture
def files(tmp_path: Path) -> EnvironmentFiles:
    return EnvironmentFiles(tmp_path / "environments")


async def test_what_is_prepared_is_made_once(files: EnvironmentFiles) -> None:
    made: list[Path] = []

    async def make(place: Path) -> None:
        made.append(place)
        (place / "whole").touch()

    first, second = await asyncio.gather(files.prepared("d", make), files.prepared("d", make))
    third = await files.prepared("d", make)
    assert made == [first] == [second] == [third], "where it was made, it stays"
    assert (first / "whole").exists()


async def test_what_fails_while_it_is_made_leaves_nothing(
    files: EnvironmentFiles, tmp_path: Path
) -> None:
    async def make(place: Path) -> None:
        (place / "half").touch()
        raise KestrelError("no such package")

    with pytest.raises(KestrelError, match="no such package"):
        await files.prepared("d", make)
    assert list((tmp_path / "environments" / "made").iterdir()) == []
    assert list((tmp_path / "environments" / "prepared").iterdir()) == []


async def test_of_what_fails_on_a_full_disk_it_is_said_that_the_disk_is_full(
    files: EnvironmentFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool's last words need not say so."""

    async def make(place: Path) -> None:
        raise KestrelError("ensurepip failed", cause="status 1")

    free = 3 << 20
    monkeypatch.setattr("shutil.disk_usage", lambda root: Usage(1 << 40, 0, free))
    with pytest.raises(KestrelError, match="ensurepip failed") as caught:
        await files.prepared("d", make)
    assert caught.value.cause == "its disk is full, but for 3 MiB: status 1"
    free = 300 << 20
    with pytest.raises(KestrelError, match="ensurepip failed") as caught:
        await files.prepared("d", make)
    assert caught.value.cause == "status 1"


async def test_what_a_killed_process_was_making_is_swept_and_made_anew(
    files: EnvironmentFiles, tmp_path: Path
) -> None:
    async def make(place: Path) -> None:
        (place / "whole").touch()

    whole = await files.prepared("d", make)
    half = tmp_path / "environments" / "made" / "e-12345678"
    half.mkdir()
    (half / "half").touch()
    await files.sweep_unfinished()
    assert list(half.parent.iterdir()) == [whole]
    assert (whole / "whole").exists()


async def test_what_is_prepared_stays_though_a_link_leads_to_where_it_is_kept(
    tmp_path: Path,
) -> None:
    """A home on another disk, for example."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "home").symlink_to("disk")
    files = EnvironmentFiles(tmp_path / "home" / "environments")
    made = await files.prepared("d", nothing)
    await files.sweep_unfinished()
    assert await files.prepared("d", nothing) == made, "it was not swept and made anew"
    age(made, UNUSED_SECONDS + 1)
    assert await files.collect([str(made)]) == [], "tasks are inside"


async def test_one_that_is_made_for_long_delays_no_other(files: EnvironmentFiles) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def hang(place: Path) -> None:
        begun.set()
        await go_on.wait()

    slow = asyncio.create_task(files.prepared("slow", hang))
    await begun.wait()
    await files.sweep_unfinished()
    assert (await files.prepared("quick", nothing)).is_dir()
    go_on.set()
    assert (await slow).is_dir(), "and the other leaves it alone"


async def test_who_gives_up_leaves_it_to_be_made_for_the_next(files: EnvironmentFiles) -> None:
    begun, go_on, made = asyncio.Event(), asyncio.Event(), []

    async def slowly(place: Path) -> None:
        made.append(place)
        begun.set()
        await go_on.wait()

    first = asyncio.create_task(files.prepared("d", slowly))
    await begun.wait()
    first.cancel()
    await asyncio.wait([first])
    go_on.set()
    assert [await files.prepared("d", slowly)] == made


@dataclass
class Old:
    """Two that were prepared, and when they were used last."""

    files: EnvironmentFiles
    long_ago: Path
    lately: Path


@pytest.fixture
async def old(files: EnvironmentFiles) -> Old:
    found = Old(files, await files.prepared("a", nothing), await files.prepared("b", nothing))
    age(found.long_ago, UNUSED_SECONDS + 1)
    age(found.lately, FRESH_SECONDS + 1)
    return found


async def test_what_was_not_used_for_long_goes(old: Old) -> None:
    assert await old.files.collect(()) == ["a"]
    assert not old.long_ago.exists()
    assert old.lately.exists()
    again = await old.files.prepared("a", nothing)
    assert again != old.long_ago, "it is made anew"


async def test_what_is_used_now_stays_whatever_its_age(old: Old) -> None:
    assert await old.files.collect([f"{old.long_ago}/image.sif"]) == []
    assert old.long_ago.exists()


async def test_who_asks_for_it_makes_it_new_again(old: Old) -> None:
    await old.files.prepared("a", nothing)
    assert await old.files.collect(()) == []


async def test_on_a_full_disk_all_goes_that_is_not_used_of_late(
    old: Old, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = await old.files.prepared("c", nothing)
    monkeypatch.setattr("shutil.disk_usage", lambda place: Usage(1 << 40, 0, FREE_BYTES - 1))
    assert await old.files.collect(()) == ["a", "b"]
    assert fresh.exists()


async def test_on_a_full_disk_no_more_goes_than_it_takes(
    old: Old, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = iter([0, 1 << 50])
    age(old.long_ago, FRESH_SECONDS + 2)
    monkeypatch.setattr("shutil.disk_usage", lambda place: Usage(1 << 40, 0, next(free)))
    assert await old.files.collect(()) == ["a"], "the one that was used longest ago"
    assert old.lately.exists()


def age(place: Path, seconds: float) -> None:
    used_at = time.time() - seconds
    os.utime(place, (used_at, used_at))


async def nothing(place: Path) -> None:
    """Makes nothing."""


def test_an_environments_own_directory_is_nobody_elses(files: EnvironmentFiles) -> None:
    own = files.make_own("e-1", "TOKEN")
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    assert stat.S_IMODE((own / "token").stat().st_mode) == 0o600
    assert (own / "token").read_text() == "TOKEN"
    with pytest.raises(UsageError, match="e-1 already"):
        files.make_own("e-1", "ANOTHER")
    assert files.names() == ["e-1"]


def test_a_directory_that_mounts_cannot_name_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot be kept"):
        EnvironmentFiles(Path("/srv/a:b"))


def test_a_recipe_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"r\.txt cannot be read"):
        read_recipe(str(tmp_path / "r.txt"))
    assert read_recipe("") == b""


async def test_a_tool_that_fails_says_why() -> None:
    with pytest.raises(KestrelError, match="failed with status 3") as failed:
        await run_tool(("sh", "-c", "seq 9 >&2; echo printed; exit 3"), limit_seconds=60)
    assert failed.value.cause == "5\n6\n7\n8\n9"
    assert (
        await run_tool(("sh", "-c", "echo printed; echo said >&2"), limit_seconds=60) == "printed\n"
    )


async def test_of_a_pull_that_is_tried_again_and_again_the_end_is_told() -> None:
    """Podman warns of each try, at length, and says then what is the matter."""
    warning = 'echo "time=now level=warning msg=retrying" >&2; '
    words = "x" * 900
    for script, end in (
        (f"{warning * 3} echo Error: no such image >&2; exit 125", "Error: no such image"),
        (f"echo Error: {words} no such image >&2; exit 125", f"{words} no such image"[-800:]),
        (f"{warning} exit 1", "time=now level=warning msg=retrying"),
    ):
        with pytest.raises(KestrelError) as failed:
            await run_tool(("sh", "-c", script), limit_seconds=60)
        assert failed.value.cause == end


async def test_a_tool_that_is_not_there_is_named() -> None:
    with pytest.raises(MissingTool, match="no-such-tool is not installed"):
        await run_tool(("no-such-tool",), limit_seconds=60)


async def test_a_tool_that_takes_too_long_is_ended_with_all_that_it_has_started() -> None:
    with pytest.raises(TimedOut, match="took more than"):
        await run_tool(("sh", "-c", "sleep 1000 & sleep 1000; true"), limit_seconds=0.05)


async def test_the_group_of_a_tool_is_ended_while_its_number_is_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that the tool left may hold its output for half an hour."""
    found: list[str] = []

    def kill_group(leader: int) -> bool:
        found.append(psutil.Process(leader).status())
        return True

    monkeypatch.setattr(tool_run, "kill_group", kill_group)
    assert await run_tool(("echo", "made"), limit_seconds=60) == "made\n"
    assert found == [psutil.STATUS_ZOMBIE]


@pytest.mark.timeout(30)
@pytest.mark.parametrize("steps", range(12))
def test_a_loop_that_ends_while_a_tool_is_started_ends_the_tool(steps: int, tmp_path: Path) -> None:
    """So does the process that makes environments, whenever its worker is killed."""
    mark = str(tmp_path / "tool")
    tool = ("sh", "-c", 'sh -c "sleep 30; true" "$0" & wait', mark)

    async def main() -> None:
        running = asyncio.ensure_future(run_tool(tool, limit_seconds=60))
        for _ in range(steps):
            await asyncio.sleep(0)
        assert not running.done()

    asyncio.run(main())
    left = [
        each for each in psutil.process_iter(["cmdline"]) if mark in (each.info["cmdline"] or ())
    ]
    # A process that was killed may take a moment to end.
    _, stay = psutil.wait_procs(left, timeout=10)
    assert not stay, "nor does what the tool has started stay"
