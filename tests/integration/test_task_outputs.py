"""What tasks leave is packed and stored when they have ended, whatever they do meanwhile."""

from __future__ import annotations

import asyncio
import hashlib
import os
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from test_execution import Machine, until

from kestrelctl.core.model.files.stored_file import Piece, StoredFile
from kestrelctl.errors import KestrelError, NotAllowed, Unreachable
from kestrelctl.files.archive import unpack
from kestrelctl.worker.addresses.shared_outputs import SharedOutputs
from kestrelctl.worker.files.output_stage import GIVE_UP_SECONDS, OutputStage
from kestrelctl.worker.run.executor import Completion

LIMIT_BYTES = 1 << 20


class Share:
    """A file share that keeps archives in memory, and fails as often as it is told to.

    Attributes:
        slow: while it is set, uploads begin and do not end.
        fails: what the next uploads end with.
    """

    def __init__(self) -> None:
        self.archives: list[bytes] = []
        self.tries = 0
        self.fails: list[KestrelError] = []
        self.slow = False
        self.under_way = 0

    async def put(self, path: Path) -> StoredFile:
        self.tries += 1
        if self.fails:
            raise self.fails.pop(0)
        self.under_way += 1
        try:
            while self.slow:
                await asyncio.sleep(0.002)
        finally:
            self.under_way -= 1
        data = path.read_bytes()
        self.archives.append(data)
        sha256 = hashlib.sha256(data).hexdigest()
        piece = Piece(sha256=sha256, size_bytes=len(data), url="https://share/1")
        return StoredFile(sha256=sha256, size_bytes=len(data), pieces=(piece,))


class Desk(Machine):
    """A machine whose tasks leave something."""

    def __init__(self, tmp_path: Path) -> None:
        self.share = Share()
        self.paused_seconds = 0.0
        self.online = True
        stage = OutputStage(
            tmp_path / "outgoing",
            self.share,
            is_online=lambda: self.online,
            writer=SharedOutputs(own_user=True),
            limit_bytes=LIMIT_BYTES,
            now=lambda: self.paused_seconds,
            sleep=self._sleep,
            random=Random(1),
        )
        self.outgoing = tmp_path / "outgoing"
        self.home = tmp_path / "home"
        super().__init__(tmp_path / "work", output_stage=stage)

    async def _sleep(self, seconds: float) -> None:
        self.paused_seconds += seconds
        self.online = self.online or self.paused_seconds > 5 * GIVE_UP_SECONDS

    async def leaves(self, script: str, *globs: str, **more: Any) -> Completion:
        return await self.sh(script, outputs=globs, **more)

    def came_home(self) -> dict[str, bytes]:
        """What is in the last archive, by name."""
        archive = self.home.with_suffix(".tar")
        archive.write_bytes(self.share.archives[-1])
        place = self.home / str(len(self.share.archives))
        unpack(archive, place, most_bytes=1 << 30)
        files = (path for path in place.rglob("*") if not path.is_dir())
        return {str(path.relative_to(place)): path.read_bytes() for path in files}


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    found = Desk(tmp_path)
    yield found
    await found.executor.close()
    assert os.listdir(found.outgoing) == []


async def test_what_fits_is_stored_and_the_rest_is_removed(desk: Desk) -> None:
    ended = await desk.leaves(
        "mkdir -p out/deep; echo 1 > out/a; echo 2 > out/deep/b; echo 3 > c.csv; echo 4 > d",
        "out/",
        "*.csv",
    )
    assert (ended.exit_code, ended.reason, ended.output_files) == (0, "", 3)
    assert desk.came_home() == {"out/a": b"1\n", "out/deep/b": b"2\n", "c.csv": b"3\n"}
    assert ended.outputs is not None
    assert ended.outputs.sha256 == hashlib.sha256(desk.share.archives[0]).hexdigest()
    assert ended.stored_seconds > 0
    assert (await desk.sh("ls -A")).stdout == b""


async def test_at_an_address_files_are_as_the_task_has_left_them(
    desk: Desk, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    address = f"file://{there}/7"
    ended = await desk.leaves("mkdir out; echo 1 > out/a; echo 2 > b", "**", output_to=address)
    assert (ended.exit_code, ended.reason, ended.output_files) == (0, "", 2)
    assert (ended.outputs, desk.share.archives) == (None, [])
    assert ended.stored_seconds > 0
    assert [(there / "7" / name).read_text() for name in ("out/a", "b")] == ["1\n", "2\n"]
    failed = await desk.leaves("echo 3 > b; exit 3", "**", output_to=address)
    assert (failed.exit_code, failed.output_files) == (3, 0)
    assert (there / "7" / "b").read_text() == "2\n"


async def test_the_same_files_are_the_same_archive(desk: Desk) -> None:
    for script in ("echo x > a; sleep 0.01; echo y > b", "echo y > b; echo x > a"):
        await desk.leaves(script, "?")
    assert desk.share.archives[0] == desk.share.archives[1]


async def test_names_are_bytes(desk: Desk) -> None:
    ended = await desk.leaves(
        r"""printf 1 > "$(printf 'two\nlines.x')"; printf 2 > "$(printf '\377\376.x')";"""
        r"""printf 3 > ' .x'; printf 4 > "$(printf '%0200d' 5).x" """,
        "*.x",
    )
    assert ended.reason == ""
    names = {os.fsencode(name) for name in desk.came_home()}
    assert names == {b"two\nlines.x", b"\xff\xfe.x", b" .x", b"%0200d.x" % 5}


async def test_what_can_be_executed_still_can(desk: Desk) -> None:
    await desk.leaves("touch plain tool; chmod 755 tool; chmod 4755 tool", "*")
    desk.came_home()
    assert os.access(desk.home / "1" / "tool", os.X_OK)
    assert not os.access(desk.home / "1" / "plain", os.X_OK)
    assert (desk.home / "1" / "tool").stat().st_mode & 0o7000 == 0


async def test_links_inside_come_and_what_does_not_come_is_named(
    desk: Desk, tmp_path: Path
) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("secret")
    ended = await asyncio.wait_for(
        desk.leaves(
            f"echo x > real.x; ln -s {tmp_path}/secret/key key.x; ln -s {tmp_path}/secret dir;"
            "mkfifo fifo.x; mkdir d.x; echo y > d.x/inside; ln -s real.x alias.x; ln -s . loop;"
            f"ln -s {tmp_path}/secret sub; mkdir -p deep; ln -s {tmp_path}/secret deep/sub",
            "**/*.x",
            "**/rea?.x",
        ),
        20,
    )
    assert ended.is_success(())
    assert ended.output_files == 2
    assert desk.came_home() == {"real.x": b"x\n", "alias.x": b"x\n"}
    assert (desk.home / "1" / "alias.x").readlink() == Path("real.x")
    assert ended.reason == (
        "outputs-incomplete: 'fifo.x' is no file;"
        " 'key.x' is a link that leads out of what is stored"
    )


async def test_a_remark_on_what_was_left_follows_that_on_the_cleanup(desk: Desk) -> None:
    ended = await desk.leaves("echo x > a; ln -s /etc b", "*", cleanup=("/bin/false",))
    assert ended.is_success(())
    assert ended.reason.startswith("cleanup-failed: exit code 1; outputs-incomplete: 'b' is a link")


async def test_inputs_of_a_task_are_not_among_what_it_leaves(desk: Desk, tmp_path: Path) -> None:
    ended = await desk.leaves("echo x > a", "**", links=(("table", str(tmp_path)),))
    assert (ended.reason, ended.output_files) == ("", 1)
    assert desk.came_home() == {"a": b"x\n"}


@pytest.mark.parametrize("glob", ["dir/key", "dir/*", "*/key", "**/key", "dir/", "link", "l*"])
async def test_no_link_leads_out(desk: Desk, tmp_path: Path, glob: str) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("secret")
    script = f"ln -s {tmp_path}/secret dir; ln -s {tmp_path}/secret/key link"
    ended = await desk.leaves(script, glob)
    assert ended.reason.startswith(f"outputs-missing: no file is '{glob}'")
    assert not desk.share.archives


async def test_a_scratch_directory_that_was_replaced_is_not_read(
    desk: Desk, tmp_path: Path
) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("secret")
    for made in (f"ln -s {tmp_path}/secret", f"cp -r {tmp_path}/secret"):
        ended = await desk.leaves(f"cd ..; mv scratch away; {made} scratch", "*")
        assert ended.reason.startswith("outputs-failed: ")
    ended = await desk.leaves(
        f"cd ../..; mv 0 away; mkdir 0; ln -s {tmp_path}/secret 0/scratch", "*"
    )
    assert ended.reason.startswith("outputs-failed: ")
    assert not desk.share.archives


async def test_links_that_are_swapped_all_the_time_never_lead_out(
    desk: Desk, tmp_path: Path
) -> None:
    """A child that outlives its task swaps a directory and a file for links while it can."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "a").write_text("secret")
    swap = (
        "import os, sys\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid()\n"
        "if os.fork(): os._exit(0)\n"
        f"os.symlink({str(tmp_path / 'secret')!r}, 'l'); os.symlink('l/a', 'm')\n"
        "while True:\n"
        "    os.rename('d', 'x'); os.rename('l', 'd'); os.rename('d', 'l'); os.rename('x', 'd')\n"
        "    os.rename('f', 'x'); os.rename('m', 'f'); os.rename('f', 'm'); os.rename('x', 'f')\n"
    )
    (tmp_path / "swap.py").write_text(swap)
    for _ in range(20):
        ended = await desk.leaves(
            f"mkdir d; echo mine > d/a; echo mine > f; python3 {tmp_path}/swap.py; sleep 0.01",
            "d/*",
            "f",
        )
        assert ended.reason.partition(":")[0] in ("", "outputs-missing", "outputs-failed")
    for data in desk.share.archives:
        assert b"secret" not in data


@pytest.mark.parametrize(
    ("script", "glob", "why"),
    [
        ("true", "*.csv", "outputs-missing: no file is '*.csv'"),
        ("mkdir out", "out", "is a directory; with / at its end all of it"),
        ("ln -s nowhere a", "a", "'a' is a link"),
        ("mkfifo a", "a", "'a' is no file"),
        ("truncate -s 20G a", "a", "outputs-too-large: 21,474,836,480 bytes"),
        ("for i in 1 2 3; do truncate -s 400K a$i; done", "*", "outputs-too-large: 1,228,800"),
        ("p=.; for i in $(seq 70); do p=$p/d; done; mkdir -p $p", "**/x", "64 directories deep"),
    ],
)
async def test_what_is_not_stored_fails_the_task_with_a_word(
    desk: Desk, script: str, glob: str, why: str
) -> None:
    ended = await desk.leaves(script, glob)
    assert ended.exit_code == 0
    assert why in ended.reason
    assert ended.outputs is None
    assert not ended.is_success(())
    assert not desk.share.archives


async def test_each_glob_is_a_promise(desk: Desk) -> None:
    ended = await desk.leaves("echo > a", "a", "b")
    assert ended.reason == "outputs-missing: no file is 'b'"


async def test_only_a_success_leaves_files(desk: Desk) -> None:
    assert (await desk.leaves("echo > a; exit 3", "a")).reason == ""
    assert (await desk.leaves("exit 3", "a")).reason == ""
    assert not desk.share.tries
    ended = await desk.leaves("echo > a; exit 3", "a", success_exits=((3, 3),))
    assert (ended.exit_code, ended.output_files) == (3, 1)


async def test_the_cleanup_is_over_before_files_are_taken(desk: Desk) -> None:
    ended = await desk.leaves(
        "echo > a; echo > b", "*", cleanup=("/bin/sh", "-c", "rm a; echo c > c; exit 1")
    )
    assert (ended.reason, ended.output_files) == ("cleanup-failed: exit code 1", 2)
    assert set(desk.came_home()) == {"b", "c"}


async def test_an_upload_that_fails_is_tried_again_after_a_pause(desk: Desk) -> None:
    desk.share.fails = [Unreachable("away"), KestrelError("odd")]
    ended = await desk.leaves("echo > a", "a")
    assert (ended.reason, ended.output_files, desk.share.tries) == ("", 1, 3)


async def test_an_upload_that_always_fails_ends_the_attempt_with_the_reason(desk: Desk) -> None:
    desk.share.fails = [Unreachable("the share is away", cause="no route")] * 1000
    ended = await desk.leaves("echo > a", "a")
    assert ended.reason == "outputs-failed: the share is away: no route"
    assert 20 < desk.share.tries < 60


async def test_while_the_server_is_away_no_upload_is_given_up(desk: Desk) -> None:
    desk.online = False
    desk.share.fails = [Unreachable("the server is away")] * 120
    ended = await desk.leaves("echo > a", "a")
    assert (ended.reason, ended.output_files) == ("", 1)


async def test_what_can_never_be_stored_is_not_tried_again(desk: Desk) -> None:
    desk.share.fails = [NotAllowed("this account may not")]
    ended = await desk.leaves("echo > a", "a")
    assert ended.reason == "outputs-failed: this account may not"
    assert desk.share.tries == 1


async def test_others_run_and_end_while_files_are_stored(desk: Desk) -> None:
    desk.share.slow = True
    first = desk.start("/bin/sh", "-c", "echo printed; echo > a", outputs=("a",))
    await until(lambda: desk.share.under_way)
    assert (await desk.sh("echo other")).stdout == b"other\n"
    assert first not in desk.exits
    assert desk.executor.used([first]) == {}
    assert desk.executor.read_output(first, "stdout", 0, 100) == b"printed\n"
    desk.share.slow = False
    assert (await desk.exit_of(first)).output_files == 1


async def test_a_cancel_ends_an_upload(desk: Desk) -> None:
    desk.share.slow = True
    number = desk.start("/bin/sh", "-c", "echo > a", outputs=("a",))
    await until(lambda: desk.share.under_way)
    assert desk.executor.kill(number)
    assert desk.executor.kill(number)
    ended = await desk.exit_of(number)
    assert (ended.reason, ended.outputs) == ("cancelled", None)
    assert not desk.share.under_way
    assert (await desk.sh("ls -A")).stdout == b""


async def test_a_cancel_ends_the_packing(desk: Desk) -> None:
    """Also where it comes before anything was packed, and where others wait for their turn."""
    numbers = [
        desk.start(
            "/bin/sh", "-c", "head -c 900000 /dev/zero > a", outputs=("a",), env={"PATH": "/bin"}
        )
        for _ in range(12)
    ]
    desk.share.slow = True
    await until(lambda: desk.share.under_way)
    for number in numbers:
        desk.executor.kill(number)
    reasons = [(await desk.exit_of(number)).reason for number in numbers]
    assert set(reasons) == {"cancelled"}


async def test_a_worker_that_closes_gives_uploads_up(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.share.slow = True
    number = desk.start("/bin/sh", "-c", "echo > a", outputs=("a",))
    await until(lambda: desk.share.under_way)
    await asyncio.wait_for(desk.executor.close(), 20)
    assert number not in desk.exits
    assert os.listdir(desk.outgoing) == []


async def test_a_few_at_a_time(desk: Desk) -> None:
    desk.share.slow = True
    numbers = [desk.start("/bin/sh", "-c", "echo > a", outputs=("a",)) for _ in range(20)]
    await until(lambda: desk.share.under_way == 4)
    assert (await desk.sh("sleep 0.05")).exit_code == 0
    assert desk.share.under_way == 4
    desk.share.slow = False
    for number in numbers:
        assert (await desk.exit_of(number)).output_files == 1


async def test_a_file_that_grows_or_shrinks_meanwhile_does_no_harm(desk: Desk) -> None:
    """The child is killed soon; until then each archive is whole, or the attempt fails."""
    script = "(setsid sh -c 'while :; do head -c 300000 /dev/zero > a; : > a; done' &); sleep 0.05"
    for _ in range(5):
        ended = await desk.leaves(script, "a")
        assert ended.reason.partition(":")[0] in ("", "outputs-failed")
    for data in desk.share.archives:
        (desk.home.with_suffix(".tar")).write_bytes(data)
        with tarfile.open(desk.home.with_suffix(".tar")) as archive:
            assert archive.getnames() == ["a"]


async def test_what_an_earlier_worker_was_packing_is_removed(tmp_path: Path) -> None:
    (tmp_path / "outgoing").mkdir()
    (tmp_path / "outgoing" / "7.tar").write_text("half of it")
    desk = Desk(tmp_path)
    assert os.listdir(desk.outgoing) == []
    await desk.executor.close()


async def test_a_worker_that_cannot_store_says_so(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "work")
    ended = await machine.sh("echo > a", outputs=("a",))
    assert ended.reason == "outputs-failed: this worker cannot store files"
    await machine.executor.close()
