"""What environments have on disk: whole or not at all."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest

from kestrelctl.errors import KestrelError, MissingTool, TimedOut, UsageError
from kestrelctl.worker.environments.environment_files import EnvironmentFiles, read_recipe
from kestrelctl.worker.environments.tool_run import run_tool


@pytest.fixture
def files(tmp_path: Path) -> EnvironmentFiles:
    return EnvironmentFiles(tmp_path / "environments")


async def test_what_is_prepared_is_made_once(files: EnvironmentFiles) -> None:
    made: list[Path] = []

    async def make(place: Path) -> None:
        made.append(place)
        (place / "whole").touch()

    first, second = await asyncio.gather(files.prepared("d", make), files.prepared("d", make))
    assert made == [first] == [second], "where it was made, it stays"
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


async def test_a_tool_that_is_not_there_is_named() -> None:
    with pytest.raises(MissingTool, match="no-such-tool is not installed"):
        await run_tool(("no-such-tool",), limit_seconds=60)


async def test_a_tool_that_takes_too_long_is_ended_with_all_that_it_has_started() -> None:
    with pytest.raises(TimedOut, match="took more than"):
        await run_tool(("sh", "-c", "sleep 1000 & sleep 1000; true"), limit_seconds=0.05)
