"""What is packed of a directory in which anybody may have put anything, and what is made of it."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kestrelctl.core.model.files.outputs import OutputGlobs
from kestrelctl.core.model.files.stored_file import StoredFile
from kestrelctl.errors import KestrelError, NotAllowed, OverQuota, Unreachable
from kestrelctl.files.archive import members
from kestrelctl.worker.files import output_archive
from kestrelctl.worker.files.output_archive import OutputArchive, OutputsRefused, Stopped
from kestrelctl.worker.files.output_stage import GIVE_UP_SECONDS, MOST_AT_ONCE, OutputStage

LIMIT_BYTES = 10_000


class Scratch:
    """A scratch directory beside a secret."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "scratch"
        self.path.mkdir()
        self.fd = os.open(self.path, os.O_RDONLY)
        self.left_out = ""
        self.secret = directory / "secret"
        self.secret.mkdir()
        (self.secret / "key").write_text("secret")

    def put(self, name: str, data: str = "x") -> None:
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        (self.path / name).write_text(data)

    def link(self, name: str, target: str | Path) -> None:
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        (self.path / name).symlink_to(target)

    def pack(
        self,
        *globs: str,
        stopped: Callable[[], bool] = lambda: False,
        inputs: dict[str, str] | None = None,
    ) -> dict[str, bytes | str]:
        """What is packed, by name: the content of a file, where a link points."""
        made = io.BytesIO()
        archive = OutputArchive(self.fd, OutputGlobs(globs), LIMIT_BYTES, stopped, inputs)
        count = archive.write(made)
        self.left_out = archive.left_out
        made.seek(0)
        assert count == len(members(made)), "they can be unpacked"
        made.seek(0)
        found: dict[str, bytes | str] = {}
        with tarfile.open(fileobj=made, errors="surrogateescape") as packed:
            for each in packed:
                file = packed.extractfile(each) if each.isreg() else None
                found[each.name] = each.linkname if file is None else file.read()
        return found

    def why_not(self, *globs: str) -> str:
        with pytest.raises(OutputsRefused) as refused:
            self.pack(*globs)
        return refused.value.reason


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Scratch]:
    found = Scratch(tmp_path)
    yield found
    os.close(found.fd)


def test_what_globs_name_is_packed_and_nothing_else(scratch: Scratch) -> None:
    for name in ("a.csv", "b.txt", "out/c", "out/deep/d", "other/e"):
        scratch.put(name, name)
    wanted = {"a.csv": b"a.csv", "out/c": b"out/c", "out/deep/d": b"out/deep/d"}
    assert scratch.pack("*.csv", "out/", "**/*.csv") == wanted


def test_a_small_file_makes_a_small_archive(scratch: Scratch) -> None:
    scratch.put("a")
    made = io.BytesIO()
    OutputArchive(scratch.fd, OutputGlobs(["a"]), LIMIT_BYTES, lambda: False).write(made)
    assert len(made.getvalue()) == 512 + 512 + 1024


def test_no_link_leads_out(scratch: Scratch) -> None:
    scratch.put("real")
    scratch.link("key", scratch.secret / "key")
    scratch.link("dir", scratch.secret)
    scratch.link("loop", ".")
    assert scratch.pack("**") == {"real": b"x", "loop": "."}
    for glob in ("key", "dir/key", "dir/", "*/key", "loop/real"):
        assert scratch.why_not(glob).startswith(f"outputs-missing: no file is '{glob}'")
    assert scratch.why_not("key", "dir") == (
        "outputs-missing: no file is 'key', 'dir'; 'dir' is a link that leads out of what is"
        " stored; 'key' is a link that leads out of what is stored"
    )


def test_links_come_along_where_they_lead_to_what_comes(scratch: Scratch) -> None:
    scratch.put("out/data/v3/table")
    scratch.link("out/data/latest", "v3")
    scratch.link("out/table", "data/latest/table")
    scratch.link("out/again", "./table")
    scratch.link("out/data/v3/up", "../../table")
    assert scratch.pack("out/") == {
        "out/data/v3/table": b"x",
        "out/data/latest": "v3",
        "out/table": "data/latest/table",
        "out/again": "./table",
        "out/data/v3/up": "../../table",
    }
    assert scratch.left_out == ""


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("/etc/passwd", "leads out of what is stored"),
        ("../../secret/key", "leads out of what is stored"),
        ("../real", "to what is not stored"),
        ("nobody", "to what is not stored"),
        ("sub/../a", "leads out of what is stored"),
        ("abroad", "leads out of what is stored"),
        ("abroad/key", "leads out of what is stored"),
        ("link", "leads through too many others"),
        ("other", "leads through too many others"),
    ],
)
def test_a_link_that_cannot_come_is_named_and_the_others_come(
    scratch: Scratch, target: str, why: str
) -> None:
    scratch.put("real")
    scratch.put("out/a")
    scratch.put("out/sub/b")
    scratch.link("out/link", target)
    if target == "other":
        scratch.link("out/other", "link")
    if "abroad" in target:
        scratch.link("out/abroad", scratch.secret)
    assert scratch.pack("out/") == {"out/a": b"x", "out/sub/b": b"x"}
    assert f"'out/link' is a link {'that ' if 'leads' in why else ''}{why}" in scratch.left_out
    assert scratch.left_out.startswith("outputs-incomplete: 'out/")


def test_what_is_no_file_is_named_and_some_stand_for_many(scratch: Scratch) -> None:
    scratch.put("a")
    for n in range(9):
        os.mkfifo(scratch.path / f"pipe{n}")
    assert scratch.pack("*") == {"a": b"x"}
    assert scratch.left_out == (
        "outputs-incomplete: 'pipe0' is no file; 'pipe1' is no file; 'pipe2' is no file; and 6 more"
    )
    assert scratch.pack("a") == {"a": b"x"}
    assert scratch.left_out == "", "no glob names them"


def test_directories_beside_files_are_not_meant(scratch: Scratch) -> None:
    scratch.put("a")
    scratch.put("sub/b")
    assert scratch.pack("*") == {"a": b"x"}
    assert scratch.left_out == ""


def test_inputs_are_not_what_a_task_leaves(scratch: Scratch) -> None:
    scratch.put("a")
    scratch.link("table", "/inputs/table")
    inputs = {"table": "/inputs/table"}
    assert scratch.pack("**", inputs=inputs) == {"a": b"x"}
    assert scratch.left_out == ""
    with pytest.raises(OutputsRefused, match="'table' is an input"):
        scratch.pack("table", inputs=inputs)
    (scratch.path / "table").unlink()
    scratch.link("table", "/elsewhere")
    scratch.pack("**", inputs=inputs)
    assert "'table' is a link that leads out" in scratch.left_out, "the task's own"


def test_each_glob_is_to_mean_a_file(scratch: Scratch) -> None:
    scratch.put("a")
    assert scratch.why_not("a", "b") == "outputs-missing: no file is 'b'"


class Swapping:
    """What `os` is to the archive while somebody swaps a name at the worst moment.

    Attributes:
        after: the function after whose first call for the name that is done.
    """

    def __init__(self, name: str, swap: Callable[[], None], after: str) -> None:
        self._name = name
        self._swap = swap
        self._after = after
        self.swapped = False

    def __getattr__(self, function: str) -> object:
        found = getattr(os, function)
        if function != self._after:
            return found

        def called(name: object, *more: object, **named: object) -> object:
            result = found(name, *more, **named)
            if name == self._name and not self.swapped:
                self.swapped = True
                self._swap()
            return result

        return called


def swapped_for(path: Path, target: Path) -> Callable[[], None]:
    def swap() -> None:
        path.rename(path.with_name("away"))
        path.symlink_to(target)

    return swap


@pytest.mark.parametrize("name", ["dir", "file"])
def test_what_is_swapped_for_a_link_when_it_was_looked_at_does_not_lead_out(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    scratch.put("dir/key", "mine")
    scratch.put("file", "mine")
    target = scratch.secret if name == "dir" else scratch.secret / "key"
    swapping = Swapping(name, swapped_for(scratch.path / name, target), "stat")
    monkeypatch.setattr(output_archive, "os", swapping)
    with pytest.raises((OSError, OutputsRefused)):
        scratch.pack("dir/key", "file")
    assert swapping.swapped


def test_a_fifo_that_took_the_place_of_a_file_makes_nobody_wait(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch.put("file")

    def swap() -> None:
        (scratch.path / "file").unlink()
        os.mkfifo(scratch.path / "file")

    monkeypatch.setattr(output_archive, "os", Swapping("file", swap, "stat"))
    with pytest.raises(OSError, match="replaced"):
        scratch.pack("file")


def test_a_file_that_grows_is_as_large_as_it_was_and_never_beyond_the_limit(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch.put("file", "x" * 100)

    def grow() -> None:
        scratch.put("file", "x" * (LIMIT_BYTES + 1))

    monkeypatch.setattr(output_archive, "os", Swapping("file", grow, "stat"))
    assert scratch.why_not("file").startswith("outputs-too-large: 10,001 bytes")


def test_sizes_are_added_up_before_anything_is_packed(scratch: Scratch) -> None:
    for name in "ab":
        scratch.put(name, "x" * (LIMIT_BYTES // 2))
    assert len(scratch.pack("?")) == 2
    scratch.put("c")
    made = io.BytesIO()
    archive = OutputArchive(scratch.fd, OutputGlobs(["?"]), LIMIT_BYTES, lambda: False)
    with pytest.raises(OutputsRefused, match="outputs-too-large: 10,001 bytes"):
        archive.write(made)
    assert made.getvalue() == b""


def test_too_many_names_and_files_are_refused(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(5):
        scratch.put(f"f{n}", "")
    monkeypatch.setattr(output_archive, "MOST_FILES", 4)
    assert scratch.why_not("*") == "outputs-too-large: more than 4 files"
    assert len(scratch.pack("f[0-3]")) == 4
    monkeypatch.setattr(output_archive, "MOST_NAMES", 4)
    assert scratch.why_not("f0") == "outputs-too-large: more than 4 names to look at"


def test_more_directories_than_can_be_unpacked_again_are_refused(
    scratch: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(3):
        scratch.put(f"d{n}/f", "")
    monkeypatch.setattr("kestrelctl.files.archive.MOST_MEMBERS", 5)
    assert len(scratch.pack("d0/", "d1/")) == 2
    assert "files and directories" in scratch.why_not("*/f")


def test_holes_of_an_output_are_not_packed(scratch: Scratch) -> None:
    scratch.put("state", "first")
    os.truncate(scratch.path / "state", 1 << 30)
    made = io.BytesIO()
    OutputArchive(scratch.fd, OutputGlobs(["state"]), 1 << 30, lambda: False).write(made)
    assert len(made.getvalue()) < 100_000
    (found,) = members(made)
    assert found.size_bytes == 1 << 30
    with pytest.raises(OutputsRefused, match="outputs-too-large"):
        OutputArchive(scratch.fd, OutputGlobs(["state"]), LIMIT_BYTES, lambda: False).write(made)


def test_packing_ends_soon_when_nobody_wants_it(scratch: Scratch) -> None:
    for n in range(5):
        scratch.put(f"f{n}")
    asked: list[None] = []

    def stopped() -> bool:
        asked.append(None)
        return len(asked) > 3

    with pytest.raises(Stopped):
        scratch.pack("*", stopped=stopped)


# ---- storing


class Share:
    """Takes archives after it has failed as often as it is told to."""

    def __init__(self, *fails: KestrelError) -> None:
        self.fails = list(fails)
        self.tries = 0
        self.at_once = self.most_at_once = 0

    async def put(self, path: Path) -> StoredFile:
        self.tries += 1
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        if self.fails:
            raise self.fails.pop(0)
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        return StoredFile(sha256=sha256, size_bytes=0, pieces=())


class Stage:
    """A stage whose pauses cost no time."""

    def __init__(self, directory: Path, share: Share, *, online: bool = True) -> None:
        self.seconds = 0.0
        self.directory = directory / "outgoing"
        self.stage = OutputStage(
            self.directory,
            share,
            is_online=lambda: online,
            limit_bytes=LIMIT_BYTES,
            now=lambda: self.seconds,
            sleep=self._sleep,
        )

    async def _sleep(self, seconds: float) -> None:
        self.seconds += seconds

    async def store(self, scratch: Scratch, number: int = 7) -> tuple[int, str]:
        own = os.open(scratch.path, os.O_RDONLY)  # two that list by one descriptor share its place
        try:
            left = await self.stage.store(number, own, ["*"])
        except OutputsRefused as error:
            return 0, error.reason
        finally:
            os.close(own)
        return left.files, ""


async def test_a_failed_upload_is_tried_again_for_a_while_and_then_fails(
    scratch: Scratch, tmp_path: Path
) -> None:
    scratch.put("a")
    for often, expected in ((3, (1, "")), (1000, (0, "outputs-failed: away: no route"))):
        share = Share(*[Unreachable("away", cause="no route")] * often)
        stage = Stage(tmp_path, share)
        assert await stage.store(scratch) == expected
        assert stage.seconds <= GIVE_UP_SECONDS
        assert os.listdir(stage.directory) == [], "no archive stays"
        stage.stage.close()
    assert 20 < share.tries < 60


async def test_a_quota_may_have_room_later_and_a_refusal_stays_one(
    scratch: Scratch, tmp_path: Path
) -> None:
    scratch.put("a")
    for error, tries in ((OverQuota("full"), 2), (NotAllowed("never"), 1)):
        share = Share(error)
        stage = Stage(tmp_path, share)
        await stage.store(scratch)
        assert share.tries == tries
        stage.stage.close()


async def test_the_time_in_which_the_server_is_away_does_not_count(
    scratch: Scratch, tmp_path: Path
) -> None:
    scratch.put("a")
    stage = Stage(tmp_path, Share(*[Unreachable("away")] * 200), online=False)
    assert await stage.store(scratch) == (1, "")
    assert stage.seconds > 4 * GIVE_UP_SECONDS
    stage.stage.close()


async def test_a_few_are_stored_at_a_time(scratch: Scratch, tmp_path: Path) -> None:
    scratch.put("a")
    share = Share()
    stage = Stage(tmp_path, share)
    found = await asyncio.gather(*(stage.store(scratch, number) for number in range(30)))
    assert found == [(1, "")] * 30
    assert share.most_at_once <= MOST_AT_ONCE
    stage.stage.close()


def test_of_several_globs_one_that_means_a_file_may_be_enough(scratch: Scratch) -> None:
    scratch.put("state")
    archive = OutputArchive(scratch.fd, OutputGlobs(["state", "log"]), LIMIT_BYTES, lambda: False)
    assert archive.write(io.BytesIO(), every_glob=False) == 1
    nothing = OutputArchive(scratch.fd, OutputGlobs(["a", "b"]), LIMIT_BYTES, lambda: False)
    with pytest.raises(OutputsRefused, match="outputs-missing"):
        nothing.write(io.BytesIO(), every_glob=False)


@pytest.mark.parametrize("change", ["written", "replaced", "added", "link"])
def test_files_that_have_changed_can_be_told(scratch: Scratch, change: str) -> None:
    def marks() -> object:
        return OutputArchive(
            scratch.fd, OutputGlobs(["state", "more"]), LIMIT_BYTES, lambda: False
        ).marks()

    assert marks() == ()
    scratch.put("state", "old")
    state = scratch.path / "state"
    os.utime(state, ns=(1_000, 1_000))
    before = marks()
    scratch.put("others")
    assert marks() == before
    if change == "written":
        os.utime(state, ns=(1_000, 1_001))
    elif change == "replaced":
        scratch.put("state.new", "new")
        os.utime(scratch.path / "state.new", ns=(1_000, 1_000))
        os.rename(scratch.path / "state.new", state)
    elif change == "added":
        scratch.put("more")
    else:
        scratch.link("more", "state")
    assert marks() != before
