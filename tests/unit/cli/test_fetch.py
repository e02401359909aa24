"""`kestrelctl job fetch`: what tasks left comes home once and right, and what does not is told."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_fake_pool import ENDED_JOB, FAILED_JOB, FakePool, job_with, run
from click.testing import Result
from msgspec.structs import replace

from kestrelctl.client.fetch import FetchDirectory, fetch_files
from kestrelctl.core.model.files.stored_file import Piece, StoredFile
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.errors import (
    FileDamaged,
    FileExpired,
    KestrelError,
    Unreachable,
    Untrusted,
    UsageError,
)
from kestrelctl.files.archive import add_file
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.job_answers import OutputPage, TaskFiles

JOB = replace(ENDED_JOB, tasks=5, done=5)
IDS = (1, 2, 3, 4, 5)


class Share:
    """Archives by their hash.

    Attributes:
        fails: what the download of a task's archive ends with.
        given: how often each was asked for.
    """

    def __init__(self) -> None:
        self.archives: dict[str, bytes] = {}
        self.fails: dict[str, KestrelError] = {}
        self.given: list[str] = []

    def put(
        self, files: dict[str, bytes], link: str = "", links: dict[str, str] | None = None
    ) -> StoredFile:
        made = io.BytesIO()
        with tarfile.open(
            fileobj=made, mode="w", format=tarfile.GNU_FORMAT, errors="surrogateescape"
        ) as archive:
            for name, data in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
            for name, target in ((links or {}) | ({"link": link} if link else {})).items():
                entry = tarfile.TarInfo(name)
                entry.type, entry.linkname = tarfile.SYMTYPE, target
                archive.addfile(entry)
        data = made.getvalue()
        sha256 = hashlib.sha256(data).hexdigest()
        self.archives[sha256] = data
        piece = Piece(sha256=sha256, size_bytes=len(data), url="https://share/1")
        return StoredFile(sha256=sha256, size_bytes=len(data), pieces=(piece,))

    async def get(self, stored: StoredFile, target: Path) -> None:
        self.given.append(stored.sha256)
        if stored.sha256 in self.fails:
            raise self.fails[stored.sha256]
        target.write_bytes(self.archives[stored.sha256])


class Home:
    """Five tasks that left two files each, and who fetches them."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.share = Share()
        self.stored = {n: self.share.put(self.left(n)) for n in IDS}
        self.job = JOB
        monkeypatch.chdir(path)

    @staticmethod
    def left(n: int) -> dict[str, bytes]:
        return {"result": b"%d\n" % n, "deep/two\nlines-\udcff": b"x" * n}

    def _page(self, request: rq.ListOutputs) -> OutputPage:
        """Two tasks a page."""
        ids = [n for n in (request.ids or self.stored) if n > request.after and n in self.stored]
        tasks = [TaskFiles(task_id=n, files=2, stored=self.stored[n]) for n in sorted(ids)[:2]]
        after = tasks[-1].task_id if len(ids) > 2 else None
        return OutputPage(id="", tasks=tasks, after=after)

    def pool(self) -> FakePool:
        jobs = an.Jobs(id="", jobs=[self.job])
        return FakePool(ListJobs=jobs, ListOutputs=self._page, Watch=jobs)

    def fetch(self, *words: str) -> Result:
        return run(self.pool(), "job", "fetch", "7", *words, share=self.share)

    def here(self, place: str = "job-7") -> dict[str, bytes]:
        """The files below a directory, but for the notes of it."""
        top = self.path / place
        files = (path for path in top.rglob("*") if path.is_file())
        named = ((str(path.relative_to(top)), path) for path in files)
        return {name: path.read_bytes() for name, path in named if name[0] != "."}

    def wanted(self, *ids: int) -> dict[str, bytes]:
        return {
            f"{n}/{name}": data for n in ids or self.stored for name, data in self.left(n).items()
        }


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    return Home(tmp_path, monkeypatch)


def test_the_files_of_each_task_have_a_directory(home: Home) -> None:
    result = home.fetch()
    assert result.exit_code == 0, result.stderr
    assert home.here() == home.wanted()
    assert result.stdout.startswith("job 7: 10 files of 5 tasks, ")
    assert set(os.listdir(home.path / "job-7")) == {".kestrel", *map(str, IDS)}


def test_what_is_there_and_right_is_not_fetched_again(home: Home) -> None:
    home.fetch("--to", "here")
    home.share.given.clear()
    again = home.fetch("--to", "here", "-o", "json")
    assert json.loads(again.stdout)["were_there"] == 5
    assert home.share.given == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: (path / "result").unlink(),
        lambda path: (path / "result").write_bytes(b"other\n"),
        lambda path: os.utime(path / "result", (1, 1)),
        lambda path: (path / "result").rename(path / "elsewhere"),
    ],
)
def test_what_is_not_as_it_came_is_fetched_again(home: Home, spoil: Callable[[Path], None]) -> None:
    home.fetch()
    spoil(home.path / "job-7" / "3")
    (home.path / "job-7" / "3" / "notes").write_text("mine")
    home.share.given.clear()
    assert home.fetch().exit_code == 0
    assert home.share.given == [home.stored[3].sha256]
    found = home.here()
    assert home.wanted().items() <= found.items()
    assert found["3/notes"] == b"mine"


def test_a_fetch_that_was_cut_goes_on(home: Home) -> None:
    home.share.fails[home.stored[4].sha256] = Unreachable("the share is away")
    cut = home.fetch()
    assert (cut.exit_code, "the share is away" in cut.stderr) == (5, True)
    home.share.fails.clear()
    before = len(home.here())
    home.share.given.clear()
    assert home.fetch().exit_code == 0
    assert home.here() == home.wanted()
    assert len(home.share.given) == 5 - before // 2


@pytest.mark.parametrize("words", [("--to", "here"), ("--tar", "here.tar")])
def test_an_address_that_does_not_answer_keeps_back_its_own_files_alone(
    home: Home, words: tuple[str, ...]
) -> None:
    """A worker says itself where the files of its tasks lie."""
    for n in (2, 5):
        [piece] = home.stored[n].pieces
        home.stored[n] = replace(home.stored[n], pieces=(replace(piece, url="https://other/1"),))
        home.share.fails[home.stored[n].sha256] = Unreachable("other is away")
    result = home.fetch(*words)
    assert result.exit_code == 13
    assert "files of 2 tasks (2, 5) did not come" in result.stderr
    assert "other is away" in result.stderr
    if "--tar" in words:
        with tarfile.open(home.path / "here.tar", errors="surrogateescape") as archive:
            assert set(archive.getnames()) == set(home.wanted(1, 3, 4))
    else:
        assert home.here("here") == home.wanted(1, 3, 4)


def test_nobody_waits_twice_for_an_address_that_does_not_answer(home: Home) -> None:
    home.stored = {n: home.share.put(home.left(n)) for n in range(1, 40)}
    home.job = replace(JOB, tasks=39, done=39)
    home.share.fails = {
        stored.sha256: Unreachable("the share is away") for stored in home.stored.values()
    }
    assert home.fetch().exit_code == 5
    assert len(home.share.given) <= 4


def test_files_of_another_attempt_replace_those_of_before(home: Home) -> None:
    home.fetch()
    home.stored[2] = home.share.put({"result": b"better\n"})
    assert home.fetch().exit_code == 0
    assert home.here()["2/result"] == b"better\n"


@pytest.mark.parametrize("words", [("--tasks", "2,4"), ("--tasks", "4,2,4")])
def test_only_some_tasks(home: Home, words: tuple[str, ...]) -> None:
    assert home.fetch(*words).exit_code == 0
    assert home.here() == home.wanted(2, 4)


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (FileExpired("the share does not have it any more"), "any more"),
        (FileDamaged(), "not the"),
        (KestrelError("the share does not give the file"), "does not give"),
        (Untrusted("the file would come in the clear"), "in the clear"),
    ],
)
def test_what_cannot_be_had_is_told_with_a_status_and_the_rest_comes(
    home: Home, error: KestrelError, word: str
) -> None:
    for n in (2, 5):
        home.share.fails[home.stored[n].sha256] = error
    result = home.fetch("-o", "json")
    assert result.exit_code == 13
    assert home.here() == home.wanted(1, 3, 4)
    missing = json.loads(result.stdout)["missing"]
    assert list(missing) == ["2", "5"]
    assert word in missing["2"]
    assert "files of 2 tasks (2, 5) did not come" in result.stderr


def test_tasks_that_left_nothing_are_told(home: Home) -> None:
    del home.stored[3]
    result = home.fetch()
    assert result.exit_code == 13
    assert "1 task of job 7 left no files, or not yet" in result.stderr
    assert home.here() == home.wanted(1, 2, 4, 5)
    assert home.fetch("--tasks", "1,2").exit_code == 0


def test_a_directory_is_for_one_job(home: Home) -> None:
    home.fetch("--to", "here")
    for other in (replace(JOB, job_id=8), replace(JOB, submitted_at=1.0)):
        home.job = other
        refused = home.fetch("--to", "here")
        assert (refused.exit_code, "another job" in refused.stderr) == (2, True)


def test_what_was_there_before_is_left_alone(home: Home) -> None:
    (home.path / "here" / "3").mkdir(parents=True)
    (home.path / "here" / "3" / "result").write_text("mine")
    os.symlink("/nowhere", home.path / "here" / "4")
    result = home.fetch("--to", "here", "-o", "json")
    assert result.exit_code == 13
    assert sorted(json.loads(result.stdout)["missing"]) == ["3", "4"]
    assert home.here("here") == home.wanted(1, 2, 5) | {"3/result": b"mine"}


def test_nothing_is_written_elsewhere(home: Home) -> None:
    home.stored[1] = home.share.put({"../escaped": b"x"})
    home.stored[2] = home.share.put({"a": b"x"}, link="../../..")
    home.stored[3] = home.share.put({f"{home.path}/absolute": b"x"})
    result = home.fetch("-o", "json")
    assert sorted(json.loads(result.stdout)["missing"]) == ["1", "2", "3"]
    assert home.here() == home.wanted(4, 5)
    assert set(os.listdir(home.path)) == {"job-7"}


def test_links_inside_come_along(home: Home) -> None:
    links = {"latest": "v2", "table": "v2/table"}
    home.stored = {1: home.share.put({"v2/table": b"x"}, links=links)}
    for more in (b"x", b"y"):
        home.stored[1] = home.share.put({"v2/table": more}, links=links)
        assert home.fetch("--to", "here").exit_code in (0, 13)
        assert home.here("here") == {"1/v2/table": more, "1/table": more}
        assert (home.path / "here" / "1" / "latest").readlink() == Path("v2")
        (home.path / "here" / "1" / "latest").unlink()
    home.fetch("--tar", "all.tar")
    with tarfile.open(home.path / "all.tar") as archive:
        found = {each.name: each.linkname for each in archive}
    assert found == {"1/v2/table": "", "1/latest": "v2", "1/table": "v2/table"}


def test_no_file_is_written_through_a_link_that_came_before(home: Home) -> None:
    """Each of these archives stays inside by its own words; together they would not."""
    (home.path / "secret").mkdir()
    home.stored = {1: home.share.put({"file": b"x"}, links={"a": "."})}
    home.fetch("--to", "here")
    home.stored[1] = home.share.put({"a/more": b"x"})
    result = home.fetch("--to", "here", "-o", "json")
    assert "in the way" in json.loads(result.stdout)["missing"]["1"]
    home.stored[1] = home.share.put({}, links={"a/a/up": "../../secret"})
    home.fetch("--to", "here")
    home.stored[1] = home.share.put({"up/stolen": b"x"})
    home.fetch("--to", "here")
    assert list((home.path / "secret").iterdir()) == []


def test_one_archive_instead(home: Home) -> None:
    result = home.fetch("--tar", "all.tar")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == ""
    with tarfile.open(home.path / "all.tar", errors="surrogateescape") as archive:
        found = {each.name: archive.extractfile(each) for each in archive}
        read = {name: file.read() for name, file in found.items() if file is not None}
    assert read == home.wanted()
    assert list(found) == [name for n in IDS for name in home.wanted(n)]
    assert set(os.listdir(home.path)) == {"all.tar"}


def test_an_archive_takes_the_place_of_no_device(home: Home) -> None:
    os.mkfifo(home.path / "pipe")
    result = home.fetch("--tar", "pipe")
    assert result.exit_code == 1
    assert "it is no ordinary file" in result.stderr
    assert (home.path / "pipe").is_fifo()


def test_an_archive_on_stdout_is_nothing_but_that(home: Home) -> None:
    del home.stored[5]
    result = home.fetch("--tar", "-")
    assert result.exit_code == 13
    with tarfile.open(fileobj=io.BytesIO(result.stdout_bytes), errors="surrogateescape") as archive:
        assert set(archive.getnames()) == set(home.wanted())


def test_an_archive_says_what_is_not_in_it(home: Home) -> None:
    home.stored[2] = home.share.put({"../escaped": b"x"})
    home.stored[3] = home.share.put({}, link="/etc/passwd")
    home.share.fails[home.stored[4].sha256] = FileExpired("gone")
    result = home.fetch("--tar", "all.tar")
    assert result.exit_code == 13
    assert "files of 3 tasks (2, 3, 4) did not come" in result.stderr
    with tarfile.open(home.path / "all.tar", errors="surrogateescape") as archive:
        assert set(archive.getnames()) == set(home.wanted(1, 5))


def test_an_archive_that_is_cut_is_not_there(home: Home) -> None:
    home.share.fails[home.stored[4].sha256] = Unreachable("away")
    assert home.fetch("--tar", "all.tar").exit_code == 5
    assert os.listdir(home.path) == []


def test_a_directory_and_an_archive_exclude_each_other(home: Home) -> None:
    assert home.fetch("--tar", "x", "--to", "y").exit_code == 2


def test_a_job_that_leaves_nothing_makes_no_directory(home: Home) -> None:
    jobs = an.Jobs(id="", jobs=[JOB])
    pool = FakePool(ListJobs=jobs, ListOutputs=UsageError("job 7 leaves no files"))
    assert run(pool, "job", "fetch", "7").exit_code == 2
    assert os.listdir(home.path) == []


def test_submit_fetches_when_the_job_has_ended(home: Home) -> None:
    pool = home.pool()
    result = run(
        pool, "submit", "--keep", "result", "--fetch", "here", "--", "true", share=home.share
    )
    assert result.exit_code == 0, result.stderr
    assert home.here("here") == home.wanted()
    assert pool.last(rq.SubmitJob).spec.program.outputs == ("result",)
    assert pool.last(rq.SubmitJob).watch


def test_of_a_job_that_failed_comes_what_there_is(home: Home) -> None:
    home.job = replace(FAILED_JOB, tasks=5, done=4, failed=1, lost=0)
    del home.stored[1]
    result = run(
        home.pool(), "submit", "--keep", "*", "--fetch", "here", "--", "true", share=home.share
    )
    assert result.exit_code == 3
    assert home.here("here") == home.wanted(2, 3, 4, 5)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--fetch", "x"), "nothing to fetch"),
        (("--keep", "/x"), "relative to the scratch directory"),
        (("--keep", "a/../../x"), "may leave it"),
        (("--keep", "x", "--workdir", "/tmp"), "stays there"),
        (("--keep", "x", "--service"), "service"),
    ],
)
def test_what_cannot_come_home_is_refused(home: Home, words: tuple[str, ...], why: str) -> None:
    result = run(home.pool(), "submit", *words, "--", "true")
    assert (result.exit_code, why in result.stderr) == (2, True), result.stderr


def test_the_former_name_of_keep_still_works_and_says_so(home: Home, tmp_path: Path) -> None:
    pool = home.pool()
    file = tmp_path / "flow.toml"
    file.write_text("command = ['true']\noutput = '*.csv'\n")
    for words in (("--output", "*.csv", "--", "true"), ("--output=*.csv", "true"), (str(file),)):
        result = run(pool, "submit", *words)
        assert pool.last(rq.SubmitJob).spec.program.outputs == ("*.csv",)
        assert "output" in result.stderr
        assert "is called" in result.stderr
    said = run(pool, "submit", "--keep", "*.csv", "--output", "json", "--", "true", "--output", "x")
    assert "called" not in said.stderr
    assert json.loads(said.stdout)["job_id"]
    spec = pool.last(rq.SubmitJob).spec.program
    assert (spec.outputs, spec.argv) == (("*.csv",), ("true", "--output", "x"))


def test_a_job_file_may_name_outputs(home: Home) -> None:
    for value, outputs in (('"*.csv"', ("*.csv",)), ('["a", "out/"]', ("a", "out/"))):
        Path("job.toml").write_text(f'command = ["true"]\noutput = {value}\n')
        pool = home.pool()
        assert run(pool, "submit", "job.toml").exit_code == 0
        assert pool.last(rq.SubmitJob).spec.program.outputs == outputs
    Path("job.toml").write_text('command = ["true"]\noutput = [["x"]]\n')
    assert run(home.pool(), "submit", "job.toml").exit_code == 2


def test_job_info_says_what_tasks_left(home: Home) -> None:
    task = an.TaskView(index=0, task_id=1, state=TaskState.DONE, output_files=3, outputs_bytes=2048)
    pool = FakePool(
        ListTasks=an.Tasks(id="", tasks=[task, replace(task, task_id=2)]),
        ListJobs=an.Jobs(id="", jobs=[job_with(JOB, {"outputs": ("*.csv", "out/")})]),
    )
    assert "outputs         '*.csv' out/\n" in run(pool, "job", "info", "7").stdout
    assert "files           6 files of 2 tasks, 4 KiB" in run(pool, "job", "info", "7").stdout


def bomb(home: Home, size_bytes: int) -> StoredFile:
    """A few bytes that are a large file of nothing, as its second task left it."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.GNU_FORMAT) as archive:
        entry = tarfile.TarInfo("nothing")
        entry.size = size_bytes
        add_file(archive, entry, io.BytesIO(), [])
    data = made.getvalue()
    sha256 = hashlib.sha256(data).hexdigest()
    home.share.archives[sha256] = data
    piece = Piece(sha256=sha256, size_bytes=len(data), url="https://share/1")
    return StoredFile(sha256=sha256, size_bytes=len(data), pieces=(piece,))


def test_files_that_are_larger_than_what_is_free_are_named_and_the_others_come(
    home: Home,
) -> None:
    home.stored[2] = bomb(home, 1 << 60)
    result = home.fetch()
    assert result.exit_code == 13
    assert "files of 1 task (2) did not come" in result.stderr
    assert home.here() == home.wanted(1, 3, 4, 5)
    assert not (home.path / "job-7/.kestrel/2.tar").exists()
    assert "is not unpacked" in result.stderr
    assert "it would take up to 1,152,921,504,606,851,072 bytes" in result.stderr
    assert not [path for path in home.path.rglob("nothing") if path.name == "nothing"]


def test_files_that_cannot_be_written_here_are_named_and_the_others_come(home: Home) -> None:
    """Their names are longer than a name may be on this disk, say."""
    home.stored[2] = home.share.put({"x" * 300: b"x"})
    result = home.fetch()
    assert result.exit_code == 13
    assert "File name too long" in result.stderr
    assert home.here() == home.wanted(1, 3, 4, 5)


def test_two_do_not_fetch_into_one_directory_at_once(home: Home) -> None:
    """Each would take away what the other one unpacks, and note what is not there."""
    other = FetchDirectory(home.path / "job-7", JOB.job_id, JOB.submitted_at)
    result = home.fetch()
    assert result.exit_code == 2
    assert "job-7 is being fetched into already" in result.stderr
    other.close()
    assert home.fetch().exit_code == 0
    assert home.here() == home.wanted()


def test_two_who_write_one_archive_do_not_write_one_file(home: Home) -> None:
    """The other one is in the midst of it, and goes on."""
    (home.path / "all.tar.part").write_text("of another")
    assert home.fetch("--tar", "all.tar").exit_code == 0
    assert (home.path / "all.tar.part").read_text() == "of another"
    with tarfile.open(home.path / "all.tar", errors="surrogateescape") as archive:
        assert set(archive.getnames()) == set(home.wanted())


def test_one_archive_keeps_the_holes_of_files(home: Home) -> None:
    home.stored[2] = bomb(home, 1 << 40)
    assert home.fetch("--tar", "all.tar").exit_code == 0
    assert (home.path / "all.tar").stat().st_size < 100_000
    with tarfile.open(home.path / "all.tar", errors="surrogateescape") as archive:
        assert archive.getmember("2/nothing").size == 1 << 40


async def test_nothing_is_unpacked_any_more_when_a_fetch_was_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever tries again at once finds no thread of the first try at work."""
    home = Home(tmp_path, monkeypatch)
    begun, may_end = threading.Event(), threading.Event()
    started: list[int] = []
    unpacked: list[int] = []

    def take(_self: FetchDirectory, task_id: int, _stored: StoredFile) -> None:
        started.append(task_id)
        begun.set()
        may_end.wait()
        unpacked.append(task_id)

    async def lets_it_end() -> None:
        for _ in range(100):
            await asyncio.sleep(0)
        may_end.set()

    monkeypatch.setattr(FetchDirectory, "take", take)
    share: Any = home.share
    fetching = asyncio.create_task(fetch_files(share, home.pool(), JOB, tmp_path / "there"))
    assert await asyncio.to_thread(begun.wait, 30)
    later = asyncio.create_task(lets_it_end())
    try:
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching
        assert started
        assert sorted(unpacked) == sorted(started)
    finally:
        may_end.set()
        await later
