"""Which placeholders in the commands of a job are filled, whichever way the job came."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from cli_fake_pool import FakePool, run
from hypothesis import given
from hypothesis import strategies as st
from poolkit import PoolDriver

from kestrelctl.chat import submit_words
from kestrelctl.core.agent.agent import LocalAttempt
from kestrelctl.core.model.job.placeholders import (
    Placeholders,
    WordOutline,
    as_typed,
    bytes_in,
    fill,
    values_of,
)
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.shell_text import left_in
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.stage import Stage
from kestrelctl.core.model.job.template import Template, fill_for
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.claim import Claim
from kestrelctl.core.model.worker.own_tags import own_tags_of
from kestrelctl.manager.chat.job_form import job_of_form
from kestrelctl.protocol.answers import GraphJob
from kestrelctl.protocol.chat.profile import Profile, ad_of, task_message
from kestrelctl.protocol.requests import SubmitJob, SubmitLine, UploadItems
from kestrelctl.store.sqlite.earlier_specs import with_program

FIND = ("find", ".", "-name", "*.csv", "-exec", "wc", "-l", "{}", ";")
GET = Stage(name="in", argv=("get", "{i}"))
ARRAY, NONE, PASTE, ALWAYS = (
    Placeholders.ARRAY,
    Placeholders.NONE,
    Placeholders.PASTE,
    Placeholders.ALWAYS,
)


def submitted(*args: str) -> JobSpec:
    pool = FakePool()
    result = run(pool, "submit", *args)
    assert result.exit_code == 0, result.stderr
    spec = pool.last(SubmitJob).spec
    assert isinstance(spec, JobSpec)
    return spec


def of_file(path: Path, *args: str) -> JobSpec:
    return submitted(str(path), *args)


def of_graph(path: Path) -> JobSpec:
    pool = FakePool()
    result = run(pool, "submit", str(path))
    assert result.exit_code == 0, result.stderr
    [line] = pool.last(UploadItems).lines
    return msgspec.json.decode(line, type=GraphJob).spec


def command_of(spec: JobSpec, index: int = 0, item: str | None = None) -> tuple[str, ...]:
    """What a worker runs."""
    return fill_for(Template.of(1, spec), spec.program.argv, index, item)


# -- without an array ------------------------------------------------------------------------------


def test_the_braces_of_a_command_without_an_array_are_its_own() -> None:
    assert command_of(submitted("--", *FIND)) == FIND


def test_those_of_a_program_in_the_command_line_are_its_own() -> None:
    words = ("python3", "-c", "for i in range(3): print(f'{i} of {n}')")
    assert command_of(submitted("--", *words)) == words


def test_those_of_a_job_file_are_its_own(tmp_path: Path) -> None:
    toml, ini = tmp_path / "j.toml", tmp_path / "j.job"
    toml.write_text("command = 'find . -exec wc -l {} \\;'\ncleanup = ['echo', '{n}']")
    ini.write_text("[job]\ncommand=find . -exec wc -l {} +; echo\n")
    spec = of_file(toml)
    assert command_of(spec) == ("/bin/sh", "-c", "find . -exec wc -l {} \\;")
    assert fill_for(Template.of(1, spec), spec.program.cleanup, 0, None) == ("echo", "{n}")
    assert "wc -l {} +" in command_of(of_file(ini))[2]


def test_those_of_one_of_several_jobs_are_its_own(tmp_path: Path) -> None:
    path = tmp_path / "flow.toml"
    path.write_text(f"[job.count]\ncommand = {list(FIND)}\n")
    assert command_of(of_graph(path)) == FIND


def test_a_job_of_a_file_is_read_by_its_own_command_and_not_by_that_of_another(
    tmp_path: Path,
) -> None:
    path = tmp_path / "flow.toml"
    path.write_text(f"[job.a]\ncommand = ['true']\n[job.b]\ncommand = {list(FIND)}\n")
    pool = FakePool()
    assert run(pool, "submit", str(path)).exit_code == 0
    jobs = [msgspec.json.decode(line, type=GraphJob) for line in pool.last(UploadItems).lines]
    assert [command_of(job.spec) for job in jobs] == [("true",), FIND]


def test_those_of_a_submission_in_a_chat_are_its_own() -> None:
    assert command_of(submit_words.read(["--", *FIND]).spec) == FIND


def test_those_of_a_form_are_its_own() -> None:
    form = {"command": ["find . -exec wc -l {} ';'"], "queue": ["1"]}
    assert command_of(job_of_form(form)) == ("find", ".", "-exec", "wc", "-l", "{}", ";")


def test_those_of_a_line_of_2009_are_its_own() -> None:
    spec = SubmitLine(command="find . -exec wc -l {} +; echo").submission().spec
    assert "{} +" in command_of(spec)[2]


def test_those_of_a_stage_are_its_own() -> None:
    spec = submitted("--stage-in", "get {}", "--", "true")
    assert fill_for(Template.of(1, spec), spec.program.stages[0].argv, 0, None) == ("get", "{}")


def test_copies_of_a_service_are_no_array() -> None:
    spec = submitted("--service", "--copies", "3", "--", "serve", "{}")
    assert command_of(spec, 2) == ("serve", "{}")


def test_a_simple_worker_is_sent_them_as_they_are() -> None:
    spec = submitted("--", *FIND)
    attempt = LocalAttempt(1, Template.of(1, spec), 0, None, Claim({}), (1, 1, 0, 1, 1), 0.0)
    assert task_message(attempt).command == "find . -name '*.csv' -exec wc -l '{}' ';'"


# -- with one --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda path: submitted("--array", "7-9", "--", "x", "{} {n} {i}"),
        lambda path: of_file(path, "--array", "7-9"),
        lambda path: submit_words.read(["--array", "7-9", "--", "x", "{} {n} {i}"]).spec,
        lambda path: job_of_form({"command": ["x '{} {n} {i}'"], "array": ["7-9"]}),
    ],
    ids=["command line", "job file", "chat", "form"],
)
def test_numbers_fill_the_placeholders_of_an_array(
    tmp_path: Path, make: Callable[[Path], JobSpec]
) -> None:
    path = tmp_path / "j.toml"
    path.write_text("command = ['x', '{} {n} {i}']")
    assert command_of(make(path), 2) == ("x", "9 9 2")


def test_an_array_of_one_task_is_one() -> None:
    assert command_of(submitted("--array", "0", "--", "echo", "{}")) == ("echo", "0")


def test_a_queue_of_several_is_an_array(tmp_path: Path) -> None:
    assert command_of(job_of_form({"command": ["x {}"], "queue": ["5"]}), 4) == ("x", "4")
    line = SubmitLine(command="./x {}", queue=5).submission().spec
    assert command_of(line, 4)[2] == './x 4 "$KESTREL_TASK_ID"'


@pytest.mark.parametrize(
    ("word", "item", "filled"),
    [
        ("plain", None, "plain"),
        ("{}", None, "30"),
        ("{n}/{i}", None, "30/4"),
        ("in-{}.txt", "a b", "in-a b.txt"),
        ("{n}:{}", "x", "30:x"),
        ("{size}-{name}", '{"size": 3, "name": "ü"}', "3-ü"),
        ("{n}", '{"n": 7}', "7"),
        ("{list}", '{"list": [1,null]}', "[1,null]"),
        ("{print $1} ${HOME} ${n} {unknown}", "x", "{print $1} ${HOME} ${n} {unknown}"),
        ("{{}}", "x", "{}"),
        ("{{n}} {{i}}", None, "{n} {i}"),
        ("${{n}}", None, "${n}"),
        ("{{{n}}}", None, "{30}"),
        ("{{{{n}}}}", None, "{{n}}"),
        ("{{x}} {{y}}", '{"x": 1}', "{x} {{y}}"),
        ('{"a": {}}', "b", '{"a": b}'),
        ("{{n} {n}}", None, "{30 30}"),
        ("{}{}", "{}", "{}{}"),
    ],
)
def test_doubled_braces_are_braces(word: str, item: str | None, filled: str) -> None:
    assert fill((word, "rest"), 30, 4, item, ARRAY) == (filled, "rest")


def test_a_long_run_of_braces_is_read_once() -> None:
    """Read from each of its braces again, it would take hours."""
    word = "{" * 400_000
    assert fill((word, word + "n" + "}"), 30, 4, None, ARRAY) == (word, "{" * 399_999 + "30")


# -- jobs that are stored --------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["{}", "a{n}", "{{}}", "{{n}}"])
def test_a_job_that_an_earlier_version_took_means_what_it_meant(word: str) -> None:
    stored = msgspec.json.encode({"argv": ["echo", word], "first": 5})
    spec = msgspec.json.decode(with_program(stored), type=JobSpec)
    assert command_of(spec) == ("echo", word.replace("{}", "5").replace("{n}", "5"))


def test_a_job_keeps_its_braces_over_a_restart_of_the_manager() -> None:
    driver = PoolDriver()
    driver.submit(argv=FIND, placeholders=NONE)
    driver.restart()
    assert command_of(driver.pool.state.jobs[1].spec) == FIND


# -- workers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "wants"),
    [
        (JobSpec(program=Program(argv=FIND, placeholders=NONE)), True),
        (
            JobSpec(
                program=Program(argv=("x",), cleanup=("rm", "{n}"), placeholders=NONE),
            ),
            True,
        ),
        (
            JobSpec(
                program=Program(argv=("x",), stages=(GET,), placeholders=NONE),
            ),
            True,
        ),
        (JobSpec(program=Program(argv=("awk", "{print} ${n} {x}"), placeholders=NONE)), False),
        (JobSpec(program=Program(argv=("echo", "{n}"), placeholders=ARRAY)), False),
        (JobSpec(program=Program(argv=("echo", "{{n}}"), placeholders=ARRAY)), True),
        (JobSpec(program=Program(argv=("echo", "{{n}}"), placeholders=PASTE)), True),
        (JobSpec(program=Program(argv=("echo", "{{n}} {}"))), False),
    ],
)
def test_a_worker_that_would_fill_more_is_sent_no_such_task(spec: JobSpec, wants: bool) -> None:
    assert ("placeholders" in own_tags_of(spec)) is wants


def test_a_worker_of_an_earlier_version_leaves_such_a_job_to_others() -> None:
    driver = PoolDriver()
    driver.join("old")
    driver.submit(argv=FIND, placeholders=NONE)
    assert driver.held("old") == []
    driver.join("new", tags=("placeholders",))
    assert len(driver.held("new")) == 1


def test_the_pool_reads_placeholders_for_a_simple_worker() -> None:
    assert "placeholders" in ad_of(Profile(), "w1").tags
    assert isinstance(ad_of(Profile(), "w1"), WorkerAd)


# -- what looks meant ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (("echo", "{}"), ["{}"]),
        (("run", "--seed={n}", "out-{i}.txt"), ["{n}", "{i}"]),
        (("sh", "-c", "echo $((42 * {}))"), ["{}"]),
        (("sh", "-c", "echo {n} >out-{n}.txt; ls"), ["{n}"]),
        (("fit", "{seed}"), ["{seed}"]),
        (FIND, []),
        (("sh", "-c", r"find . -exec wc -l {} \;"), []),
        (("sh", "-c", "ls | xargs -I{} echo {}"), []),
        (("parallel", "echo", "{}", ":::", "1"), []),
        (("python3", "-c", "for i in 'abc': print(f'{i}')"), []),
        (("curl", "-d", '{"a": {}}', "http://x"), []),
        (("sh", "-c", "echo ${HOME} ${n}"), []),
        (("awk", "{print}"), ["{print}"]),
    ],
)
def test_a_lone_placeholder_that_nothing_fills_looks_meant(
    words: tuple[str, ...], left: list[str]
) -> None:
    assert left_in(JobSpec(program=Program(argv=words, placeholders=NONE)), None) == left


def test_the_command_line_says_so_and_what_would_fill_it() -> None:
    result = run(FakePool(), "submit", "--", "echo", "{}", "{i}")
    assert result.exit_code == 0
    assert "warning: {}, {i} in the command stay as they are\nhint: --array fills" in result.stderr
    assert "warning" not in run(FakePool(), "submit", "--", *FIND).stderr
    assert "warning" not in run(FakePool(), "submit", "--array", "1-3", "--", "echo", "{}").stderr


def test_a_file_of_several_jobs_is_told_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "flow.toml"
    path.write_text("[job.a]\ncommand = ['true']\n[job.b]\ncommand = ['x', '{}']\n")
    said = run(FakePool(), "submit", str(path)).stderr
    assert "{} in the command of job b stays as it is" in said


def test_a_chat_says_so_too() -> None:
    def said(*words: str) -> str:
        return submit_words.remarks(words, submit_words.read(words).spec)

    assert said("--", "echo", "{}") == "\n{} stays as it is: only --array fills it"
    assert said("--", *FIND) == ""


# -- sizes -----------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    ["{", "{{", "}", "}}", "{}", "{n}", "{{i}}", "{x}", "{{{x}}}", "{y}", "$", "a", "ü", "${x}"]
)
ITEMS = st.sampled_from([None, "", "ü b", '{"x": "long enough"}', '{"x": 1e15, "n": [1]}', "{"])


@given(st.lists(PIECES).map("".join), ITEMS, st.sampled_from(list(Placeholders)))
def test_an_outline_knows_the_size_of_a_word_when_it_is_filled(
    word: str, item: str | None, placeholders: Placeholders
) -> None:
    [filled] = fill((word,), 1234, 56, item, placeholders)
    values = {
        name: bytes_in(fill((f"{{{name}}}",), 1234, 56, item, ARRAY)[0])
        for name in values_of(1234, 56, item)
    }
    assert WordOutline(word, placeholders).filled_bytes(values) == bytes_in(filled)


BRACED = st.text(st.sampled_from("{}$xn "), max_size=12)


@given(word=BRACED)
def test_a_word_can_be_written_so_that_no_value_stands_in_it(word: str) -> None:
    written = as_typed(word, {"", "n", "i", "x"})
    assert fill((written,), 3, 2, '{"x": "filled"}', ARRAY) == (word,)
