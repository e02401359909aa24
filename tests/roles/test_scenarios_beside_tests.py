"""Scenarios are played beside other tests: two at a time, and none is left behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import scenarios
from scenarios import LONGEST, NAMES, Played, Scenarios

#: In the place of Molecule: says that it plays, and ends when it is told to, or destroys at once.
PLAYER = """\
cd "$0"
if [ "$1" = destroy ]; then touch "destroyed-$3"; exit; fi
sh -c 'echo $$ >"playing-$0.new"; mv "playing-$0.new" "playing-$0"
while ! test -e "end-$0"; do sleep 0.01; done' "$3"
echo "played $3"
exit "$(cat "end-$3")"
"""


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Callable[..., Scenarios]]:
    begun: list[Scenarios] = []

    def play(*names: str) -> Scenarios:
        command = ("sh", "-c", PLAYER, str(tmp_path))
        begun.append(Scenarios(list(names), command))
        return begun[-1]

    yield play
    for each in begun:
        each.close()


def wait_for(file: Path) -> str:
    deadline = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < deadline, f"{file} was not made"
        time.sleep(0.01)
    return file.read_text()


def computes(pid: int) -> bool:
    """Whether a process can still do something: one that was killed may not have been buried."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_the_longest_is_one_of_them() -> None:
    assert LONGEST in NAMES


def test_two_are_played_at_a_time_and_the_longest_begins(
    play: Callable[..., Scenarios], tmp_path: Path
) -> None:
    playing = play("a", "b", LONGEST)
    wait_for(tmp_path / "playing-a")
    wait_for(tmp_path / f"playing-{LONGEST}")
    assert not (tmp_path / "playing-b").exists()
    (tmp_path / "end-a").write_text("3")
    assert playing.played["a"].result() == Played(3, "played a\n")
    wait_for(tmp_path / "playing-b")


def test_of_what_nobody_waits_for_nothing_is_left(
    play: Callable[..., Scenarios], tmp_path: Path
) -> None:
    playing = play("a", "b", "c")
    left = [int(wait_for(tmp_path / f"playing-{name}")) for name in ("a", "b")]
    playing.close()
    assert not any(computes(pid) for pid in left)
    assert (tmp_path / "destroyed-a").exists()
    assert (tmp_path / "destroyed-b").exists()
    assert playing.played["c"].cancelled()


def test_what_hangs_is_ended_and_its_hosts_are_removed(
    play: Callable[..., Scenarios], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenarios, "HANGS_SECONDS", 0.1)
    assert play("a").played["a"].result().status is None
    assert (tmp_path / "destroyed-a").exists()


def test_of_one_that_failed_the_end_is_shown_without_the_waiting() -> None:
    waiting = ["FAILED - RETRYING: [localhost]: Wait for their ends (9 retries left)."] * 500
    said = "\n".join(["it began", *waiting, "fatal: no disk", *waiting])
    assert Played(2, said).end == "it began\nfatal: no disk"
    assert len(Played(2, "line\n" * 1000).end.splitlines()) == scenarios.END_LINES
