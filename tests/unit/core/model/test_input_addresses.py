"""Inputs at addresses: what a job may say, who gets its tasks, and what people are shown of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_fake_pool import EXPLANATION, JOB, FakePool, run

from kestrelctl.core.model.files.addresses import problem_with_address, shown
from kestrelctl.core.model.files.inputs import Input, problem_with_source
from kestrelctl.core.model.files.stored_file import StoredFile
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.shape import shape_key
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.refusal import Reason, Refusal
from kestrelctl.core.model.validate import problem_with_job
from kestrelctl.grammar.why_waiting import conclusion
from kestrelctl.manager.views import detailed
from kestrelctl.protocol import answers as an
from kestrelctl.protocol.requests import SubmitJob
from kestrelctl.worker.addresses import address_reader
from kestrelctl.worker.addresses.address_reader import tags_of_protocols

SHA256 = "ab" * 32


def sends(*words: str) -> JobSpec:
    """The job that is submitted with these words."""
    pool = FakePool()
    result = run(pool, "submit", *words, "--", "true")
    assert result.exit_code == 0, result.stderr
    return pool.last(SubmitJob).spec


def refusal(*words: str) -> str:
    """What is said of a job that is not submitted."""
    pool = FakePool()
    result = run(pool, "submit", *words, "--", "true")
    assert result.exit_code == 2, result.stderr
    assert not pool.count(SubmitJob)
    return result.stderr


@pytest.mark.parametrize(
    "address",
    [
        "file:///shared/data/big.bin",
        "file:///shared/a%0Ab%E9",
        "https://host.example.org/data.bin",
        "https://host:8443/a/b?signature=x%2Fy",
        "https://[2001:db8::1]/x",
        "http://127.0.0.1:8000/x",
        "http://localhost/x",
        "http://[::1]:8000/x",
        "s3://bucket/a/key",
    ],
)
def test_addresses_of_the_named_protocols_are_taken(address: str) -> None:
    assert problem_with_address(address) is None


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("ftp://host/x", "none of the protocols"),
        ("github://org:repo@main/x", "none of the protocols"),
        ("HTTPS://host/x", "none of the protocols"),
        ("data.bin", "none of the protocols"),
        ("simplecache::https://host/x", "chained"),
        ("zip://a.csv::https://host/x.zip", "chained"),
        ("https://host/x::file:///etc/passwd", "chained"),
        ("https://user:secret@host/x", "no user and no password"),
        ("https://user@host/x", "no user and no password"),
        ("s3://key:secret@bucket/x", "no user and no password"),
        ("http://host.example.org/x", "with the hash"),
        ("http://127.0.0.1.example.org/x", "with the hash"),
        ("https:///x", "has a host"),
        ("https://host:port/x", "it is no address"),
        ("https://host", "a directory cannot be read"),
        ("https://host/data/", "a directory cannot be read"),
        ("https://host/a b", "no spaces"),
        ("https://host/a\nb", "no control characters"),
        ("https://host/ä", "ASCII"),
        ("https://host/a/../b", "no . and no .."),
        ("https://host/a/%2e%2E/b", "no . and no .."),
        ("https://host/x#part", "ends before a #"),
        ("https://host\\@other/x", "no user"),
        ("https://host/" + "x" * 2048, "up to 2,048"),
        ("file:data", "absolute"),
        ("file:/shared/x", "absolute"),
        ("file://shared/x", "absolute"),
        ("file:///", "names one"),
        ("file:///shared/../etc/passwd", "no . and no .."),
        ("file:///shared/%2e%2e/etc/passwd", "no . and no .."),
        ("file:///shared/..%2Fetc", "names one"),
        ("file:///shared/x%00y", "no NUL"),
        ("file:///shared/x?y", "%3F"),
        ("s3://Bucket_/x", "s3://BUCKET/KEY"),
        ("s3://bucket", "names a key"),
        ("s3://bucket/a//b", "names a key"),
        ("s3://bucket/x?versionId=1", "names a key"),
    ],
)
def test_other_addresses_are_refused_with_the_reason(address: str, why: str) -> None:
    assert why in (problem_with_address(address) or "")


def test_with_the_hash_of_what_comes_it_may_come_over_an_open_line() -> None:
    assert problem_with_address("http://host.example.org/x", known=True) is None


def test_an_input_comes_from_one_place_and_is_what_its_address_says() -> None:
    address = "file:///shared/x"
    stored = StoredFile(sha256=SHA256, size_bytes=0, pieces=())
    assert problem_with_source(Input(name="x", address=address, sha256=SHA256)) is None
    assert problem_with_source(Input(name="x", address=f"{address}/", directory=True)) is None
    for wrong in (
        Input(name="x"),
        Input(name="x", stored=stored, address=address),
        Input(name="x", stored=stored, sha256=SHA256),
        Input(name="x", address=address, sha256="AB"),
        Input(name="x", address=address, directory=True),
        Input(name="x", address=f"{address}/"),
        Input(name="x", address=f"{address}/", directory=True, sha256=SHA256),
        Input(name="x", address=address, executable=True),
    ):
        assert problem_with_source(wrong), wrong
        assert problem_with_job(JobSpec(program=Program(argv=("true",), inputs=(wrong,))))
        assert problem_with_job(JobSpec(program=Program(argv=("true",), stdin=wrong)))


def test_the_words_of_an_address_name_what_is_there_and_how_tasks_find_it() -> None:
    words = (
        "https://host/data.bin",
        "file:///shared/big.bin=table",
        f"s3://bucket/key#sha256={SHA256.upper()}",
        f"https://host/y.bin#sha256={SHA256}=z",
        "https://host/get?id=7&sig=x",
        "https://host/get?id=8#=eight",
        "file:///shared/model/=m",
        "file:///shared/a%20b",
    )
    spec = sends(*(word for each in words for word in ("--input", each)))
    assert [(each.name, each.address, each.sha256) for each in spec.program.inputs] == [
        ("data.bin", "https://host/data.bin", ""),
        ("table", "file:///shared/big.bin", ""),
        ("key", "s3://bucket/key", SHA256),
        ("z", "https://host/y.bin", SHA256),
        ("get", "https://host/get?id=7&sig=x", ""),
        ("eight", "https://host/get?id=8", ""),
        ("m", "file:///shared/model/", ""),
        ("a b", "file:///shared/a%20b", ""),
    ]
    assert [each.name for each in spec.program.inputs if each.directory] == ["m"]
    assert all(each.stored is None for each in spec.program.inputs)


def test_what_workers_would_not_read_is_refused_at_the_submission() -> None:
    assert "no user and no password" in refusal("--input", "https://me:secret@host/x")
    assert "none of the protocols" in refusal("--input", "gopher://host/x")
    assert "chained" in refusal("--stdin", "simplecache::https://host/x")
    assert "64 hexadecimal digits" in refusal("--input", "https://host/x#sha256=ab")
    assert "two inputs" in refusal("--input", "https://h/x", "--input", "file:///s/x")
    assert "control character" in refusal("--input", "file:///shared/a%0Ab")
    assert "not UTF-8" in refusal("--input", "file:///shared/%E9")
    assert "secret" not in refusal("--input", "https://host/x/?secret=1")


def test_the_standard_input_may_be_at_an_address() -> None:
    stdin = sends("--stdin", "file:///shared/a%0Ab").program.stdin
    assert stdin is not None
    assert (stdin.name, stdin.address) == ("stdin", "file:///shared/a%0Ab")


def test_a_job_file_names_addresses_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(
        'command = ["true"]\ninput = ["https://host/x", "s3://bucket/y"]\nstdin = "file:///z"\n'
    )
    pool = FakePool()
    assert run(pool, "submit", str(path)).exit_code == 0
    spec = pool.last(SubmitJob).spec
    assert [each.address for each in spec.program.inputs] == ["https://host/x", "s3://bucket/y"]
    assert spec.program.stdin is not None
    assert spec.program.stdin.address == "file:///z"


def test_only_workers_that_read_all_its_protocols_get_a_job() -> None:
    spec = sends("--input", "http://localhost/x", "--input", "s3://bucket/y")
    assert shape_key(spec)[1] == {"INPUTS", "ADDRESSES-HTTPS", "ADDRESSES-S3"}
    assert shape_key(sends("--stdin", "file:///s/x"))[1] == {"INPUTS", "ADDRESSES-FILE"}


def test_a_worker_says_which_protocols_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"fsspec", "aiohttp"}
    monkeypatch.setattr(
        address_reader.importlib.util, "find_spec", lambda name: name if name in there else None
    )
    assert tags_of_protocols(reads_files=False) == ("addresses-https",)
    there.add("s3fs")
    assert tags_of_protocols(reads_files=True) == (
        "addresses-file",
        "addresses-https",
        "addresses-s3",
    )
    there.remove("fsspec")
    assert tags_of_protocols(reads_files=False) == ()


def test_a_pool_none_of_whose_workers_reads_a_protocol_says_so() -> None:
    lacking = Refusal(Reason.MISSING_TAGS, wanted="ADDRESSES-S3")
    obstacle = an.Obstacle(workers=1, example="w1@x", refusal=lacking)
    told = an.JobExplanation(
        **{
            name: getattr(EXPLANATION, name)
            for name in EXPLANATION.__struct_fields__
            if name not in ("obstacles", "could_run", "ever")
        },
        obstacles=[obstacle],
        could_run=0,
        ever=False,
    )
    why, hint = conclusion(told)
    assert "read inputs at s3: addresses" in why
    assert "--input FILE" in (hint or "")


def test_an_operator_cannot_give_such_a_tag() -> None:
    result = run(FakePool(), "worker", "run", "--tags", "Addresses-S3", "--pool", "p")
    assert result.exit_code == 2
    assert "cannot be given" in result.stderr


def test_people_see_no_query_of_an_address_which_may_be_signed() -> None:
    assert shown("https://host/x?signature=secret") == "https://host/x?…"
    assert shown("https://host/x") == "https://host/x"
    spec = sends("--input", "https://host/get?sig=secret", "--stdin", "https://host/y?s=secret")
    told = detailed(JOB, spec)
    shown_job = run(FakePool(ListJobs=an.Jobs(id="", jobs=[told])), "job", "info", "7").stdout
    assert "inputs          'https://host/get?…=get'\n" in shown_job
    assert "standard input  https://host/y?…=y\n" in shown_job
    assert "secret" not in shown_job
