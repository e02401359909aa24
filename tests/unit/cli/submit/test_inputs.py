"""`submit --input`: what the words name, what is sent, and what the pool is told of it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec
import pytest
from cli_fake_pool import CONTEXT, NOW, FakePool, FakeShare, run
from click.testing import Result

from kestrelctl.access.context import Account
from kestrelctl.client import upload_record
from kestrelctl.core.model.files.inputs import MOST_PIECES, Input
from kestrelctl.errors import OverQuota
from kestrelctl.files.share import PIECE_BYTES
from kestrelctl.protocol.answers import GraphJob
from kestrelctl.protocol.requests import SubmitJob, SubmitJobs, UploadItems

LOCAL = msgspec.structs.replace(CONTEXT, own_directories=True)


class Desk:
    """Where somebody submits.

    Attributes:
        inputs: what the pool was told of the last job.
    """

    def __init__(self) -> None:
        self.share = FakeShare()
        self.pool = FakePool()
        self.now = NOW
        self.context = CONTEXT

    def submit(self, *words: str) -> Result:
        return run(
            self.pool,
            "submit",
            *words,
            context=self.context,
            share=self.share,
            now=self.now,
        )

    def sends(self, *words: str) -> tuple[Input, ...]:
        """The inputs of a job that is submitted so."""
        result = self.submit(*words, "--", "true")
        assert result.exit_code == 0, result.stderr
        found = self.pool.last(SubmitJob).spec.program.inputs
        assert isinstance(found, tuple)
        return found

    def refusal(self, *words: str) -> str:
        """What is said of a job that is not submitted."""
        result = self.submit(*words, "--", "true")
        assert result.exit_code == 2, result.stderr
        assert not self.pool.count(SubmitJob)
        return result.stderr


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    Path("big.bin").write_text("big")
    Path("run.sh").write_text("#!/bin/sh\n")
    Path("run.sh").chmod(0o755)
    Path("src/lib").mkdir(parents=True)
    Path("src/lib/a.py").write_text("a")
    for name in ("x1.csv", "x2.csv"):
        Path(name).write_text(name)
    return Desk()


def test_a_file_goes_by_its_own_name_or_by_one_that_is_given(desk: Desk) -> None:
    plain, program = desk.sends("--input", "big.bin", "--input", "run.sh=go")
    assert (plain.name, plain.executable, plain.directory) == ("big.bin", False, False)
    assert (program.name, program.executable) == ("go", True)
    assert plain.stored.sha256 == hashlib.sha256(b"big").hexdigest()


def test_a_directory_goes_as_one_archive_that_is_the_same_each_time(desk: Desk) -> None:
    [first] = desk.sends("--input", "src")
    assert (first.name, first.directory, first.executable) == ("src", True, False)
    os.utime("src/lib/a.py", (0, 0))
    [second] = desk.sends("--input", "src/=code")
    assert (second.name, second.stored) == ("code", first.stored)
    assert len(desk.share.sent) == 1
    Path("src/lib/b.py").touch()
    [third] = desk.sends("--input", "src")
    assert third.stored != first.stored


def test_a_pattern_is_each_of_its_files(desk: Desk) -> None:
    assert [each.name for each in desk.sends("--input", "x*.csv")] == ["x1.csv", "x2.csv"]


def test_a_name_with_a_sign_of_equality_is_that_file_s_if_there_is_one(desk: Desk) -> None:
    Path("a=b").write_text("both")
    assert [each.name for each in desk.sends("--input", "a=b")] == ["a=b"]


def test_the_same_file_is_sent_once_while_the_share_has_it(desk: Desk) -> None:
    [first] = desk.sends("--input", "big.bin")
    [second] = desk.sends("--input", "big.bin=other")
    assert first.stored == second.stored
    assert desk.share.sent == [b"big"]
    desk.share.lost.add(first.stored.sha256)
    desk.sends("--input", "big.bin")
    assert len(desk.share.sent) == 2


def test_what_was_sent_long_ago_is_sent_again(desk: Desk) -> None:
    desk.sends("--input", "big.bin")
    desk.now += upload_record.REUSE_SECONDS + 1
    desk.sends("--input", "big.bin")
    assert len(desk.share.sent) == 2


def test_what_another_account_or_another_pool_was_sent_is_sent_again(desk: Desk) -> None:
    desk.sends("--input", "big.bin")
    bob = Account("bob@users.example.org", Path("bob.password"))
    for context in (
        msgspec.structs.replace(CONTEXT, user=bob),
        msgspec.structs.replace(CONTEXT, pool="other.example.org"),
    ):
        desk.context = context
        desk.sends("--input", "big.bin")
    assert len(desk.share.sent) == 3


def test_the_record_of_a_pool_of_up_goes_with_the_pool(desk: Desk, tmp_path: Path) -> None:
    directory = tmp_path / "state" / "kestrel" / "pools" / "default"
    directory.mkdir(parents=True)
    own = Account("me@users.internal", directory / "user.password")
    desk.context = msgspec.structs.replace(CONTEXT, user=own)
    desk.sends("--input", "big.bin")
    [file] = directory.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600, "who knows an address may read the file"
    file.unlink()
    desk.sends("--input", "big.bin")
    assert len(desk.share.sent) == 2


@pytest.mark.parametrize("damaged", [b"[", b'[{"at": 1, "stored": {"sha256": "\xff"}}]'])
def test_a_record_that_cannot_be_read_costs_a_second_sending(
    desk: Desk, tmp_path: Path, damaged: bytes
) -> None:
    desk.sends("--input", "big.bin")
    [file] = (tmp_path / "state").rglob("*.json")
    file.write_bytes(damaged)
    desk.sends("--input", "big.bin")
    assert len(desk.share.sent) == 2


def test_each_job_of_a_graph_has_its_inputs_and_what_they_share_is_sent_once(desk: Desk) -> None:
    Path("graph.toml").write_text(
        'input = ["big.bin"]\n'
        '[job.first]\ncommand = ["true"]\n'
        '[job.second]\ncommand = ["true"]\nafter = "first"\n'
        '[job.third]\ncommand = ["true"]\ninput = ["x*.csv"]\noutput = "*.png"\n'
    )
    result = desk.submit("graph.toml")
    assert result.exit_code == 0, result.stderr
    jobs = [msgspec.json.decode(line, type=GraphJob) for line in desk.pool.last(UploadItems).lines]
    inputs = {job.spec.name: [each.name for each in job.spec.program.inputs] for job in jobs}
    assert inputs == {"first": ["big.bin"], "second": ["big.bin"], "third": ["x1.csv", "x2.csv"]}
    assert len(desk.share.sent) == 3


def test_a_graph_with_a_missing_input_is_not_submitted(desk: Desk) -> None:
    Path("graph.toml").write_text(
        '[job.first]\ncommand = ["true"]\n[job.second]\ncommand = ["true"]\ninput = ["gone"]\n'
    )
    result = desk.submit("graph.toml")
    assert (result.exit_code, desk.pool.count(SubmitJobs)) == (2, 0)
    assert "job second: there is no file gone" in result.stderr


@pytest.mark.parametrize("words", [("--fetch", "there"), ("--stdout", "{n}")])
def test_what_is_for_one_job_is_refused_for_a_graph(desk: Desk, words: tuple[str, str]) -> None:
    Path("graph.toml").write_text('[job.first]\ncommand = ["true"]\noutput = "*"\n')
    result = desk.submit("graph.toml", *words)
    assert (result.exit_code, desk.pool.count(SubmitJobs)) == (2, 0)
    assert f"{words[0]} is for one job" in result.stderr


def test_a_job_file_names_inputs_beside_it(desk: Desk) -> None:
    Path("jobs").mkdir()
    Path("jobs/table").write_text("t")
    Path("jobs/sweep.toml").write_text('command = ["true"]\ninput = ["table=data", "../big.bin"]\n')
    result = desk.submit("jobs/sweep.toml")
    assert result.exit_code == 0, result.stderr
    names = [each.name for each in desk.pool.last(SubmitJob).spec.program.inputs]
    assert names == ["data", "big.bin"]
    Path("jobs/sweep.toml").write_text('command = ["true"]\ninput = [7]\n')
    assert "input is not text" in desk.submit("jobs/sweep.toml").stderr


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["../x", "/etc/x", "a/b", "", ".", "..", "a\nb", "kestrel-hosts", "ä" * 128]
)
def test_a_name_that_is_not_the_scratch_directory_s_own_is_refused(desk: Desk, name: str) -> None:
    assert "cannot be an input so" in desk.refusal("--input", f"big.bin={name}")


def test_a_file_whose_name_is_not_utf_8_needs_another(desk: Desk) -> None:
    file = os.fsdecode(b"caf\xe9")
    Path(file).touch()
    assert "not UTF-8" in desk.refusal("--input", file)
    assert [each.name for each in desk.sends("--input", f"{file}=cafe")] == ["cafe"]


def test_two_inputs_with_one_name_are_refused(desk: Desk) -> None:
    assert "two inputs are called 'big.bin'" in desk.refusal(
        "--input", "big.bin", "--input", "run.sh=big.bin"
    )


@pytest.mark.parametrize("word", ["gone", "gone=x", "*.gone"])
def test_a_file_that_is_not_there_is_told_of(desk: Desk, word: str) -> None:
    assert "there is no file" in desk.refusal("--input", word)


def test_what_is_no_file_is_refused_and_nothing_waits_for_it(desk: Desk) -> None:
    os.mkfifo("pipe")
    assert "neither a file nor a directory" in desk.refusal("--input", "pipe")


def test_too_many_inputs_are_refused_with_a_way_out(desk: Desk) -> None:
    for number in range(101):
        Path(f"n{number}.dat").touch()
    told = desk.refusal("--input", "*.dat")
    assert "up to 100 inputs, not 101" in told
    assert "into a directory" in told


def test_too_much_is_refused_before_it_is_sent(desk: Desk) -> None:
    with Path("src/huge").open("wb") as file:
        file.truncate(MOST_PIECES * PIECE_BYTES)
    told = desk.refusal("--input", "src", "--input", "big.bin")
    assert "the inputs of a job have up to" in told
    assert "a file system that all workers have" in told
    assert not desk.share.sent


def test_a_directory_for_the_tasks_and_inputs_exclude_each_other(desk: Desk) -> None:
    desk.context = LOCAL
    assert "--workdir" in desk.refusal("--input", "big.bin", "--workdir", "/srv")
    desk.sends("--input", "big.bin")
    assert desk.pool.last(SubmitJob).spec.program.workdir == "", (
        "though the pool is of this machine"
    )


def test_a_file_that_changes_while_it_is_sent_is_told_of(desk: Desk) -> None:
    desk.share.meanwhile = lambda: Path("big.bin").write_text("BIG!") and None
    result = desk.submit("--input", "big.bin", "--", "true")
    assert result.exit_code == 1
    assert "big.bin changed while it was sent" in result.stderr
    assert not desk.pool.count(SubmitJob)


def test_a_file_that_vanishes_while_it_is_sent_is_told_of(desk: Desk) -> None:
    desk.share.meanwhile = lambda: Path("big.bin").unlink()
    assert "the input big.bin cannot be read" in desk.refusal("--input", "big.bin")


def test_nothing_is_submitted_when_the_share_takes_a_file_not(desk: Desk) -> None:
    desk.share.full = True
    result = desk.submit("--input", "big.bin", "--", "true")
    assert result.exit_code == OverQuota.exit_status
    assert not desk.pool.count(SubmitJob)


def test_a_pool_without_a_file_share_says_so(desk: Desk) -> None:
    result = run(desk.pool, "submit", "--input", "big.bin", "--", "true")
    assert "no file share" in result.stderr
    assert not desk.pool.count(SubmitJob)


def test_one_file_may_be_the_standard_input(desk: Desk) -> None:
    assert desk.sends("--stdin", "big.bin", "--workdir", "/data") == ()
    spec = desk.pool.last(SubmitJob).spec
    assert spec.program.stdin is not None
    assert (
        spec.program.stdin.name,
        spec.program.stdin.stored.size_bytes,
        spec.program.workdir,
    ) == ("big.bin", 3, "/data")


def test_it_goes_beside_inputs(desk: Desk) -> None:
    [found] = desk.sends("--stdin", "big.bin", "--input", "x1.csv")
    spec = desk.pool.last(SubmitJob).spec
    assert (found.name, spec.program.stdin.name if spec.program.stdin else "") == (
        "x1.csv",
        "big.bin",
    )


@pytest.mark.parametrize(("file", "why"), [("gone", "it is not there"), ("src", "it is no file")])
def test_what_is_no_file_is_no_standard_input(desk: Desk, file: str, why: str) -> None:
    said = desk.refusal("--stdin", file)
    assert f"error: {file} cannot be the standard input\ncause: {why}\n" in said


def test_a_job_file_names_a_standard_input_beside_it(desk: Desk) -> None:
    Path("jobs").mkdir()
    Path("jobs/table").write_text("t")
    Path("jobs/one.toml").write_text('command = ["true"]\nstdin = "table"\n')
    assert desk.submit("jobs/one.toml").exit_code == 0
    stdin = desk.pool.last(SubmitJob).spec.program.stdin
    assert stdin is not None
    assert stdin.name == "table"
    Path("jobs/two.toml").write_text('[job.a]\ncommand = ["true"]\nstdin = "table"\n')
    assert desk.submit("jobs/two.toml").exit_code == 0
    [line] = desk.pool.last(UploadItems).lines
    assert msgspec.json.decode(line, type=GraphJob).spec.program.stdin == stdin
