"""What a submission is refused for, with the words that would do, and a stored job is not."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cli_fake_pool import FakePool, run
from jobkit import job_spec
from managerkit import PlayedManager
from poolkit import PoolDriver

from kestrelctl.core.model.job.placeholders import Placeholders, fill
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.shell_text import texts_for_a_shell
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.stage import Stage
from kestrelctl.core.model.objection import (
    MOST_ITEM_BYTES,
    MOST_STRING_BYTES,
    MOST_TOGETHER_BYTES,
    Objection,
    objection_to,
)
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import directions
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.answers import GraphJob, GraphSubmitted

ADA = "ada@users.pool/1"
MIB = 1 << 20


def job(*argv: str, items: tuple[str, ...] | None = None, **more: Any) -> JobSpec:
    count = 1 if items is None else len(items)
    fields = {"placeholders": Placeholders.ARRAY, "count": count} | more
    return job_spec(argv=argv, items=items, **fields)


def objection(spec: JobSpec) -> Objection:
    found = objection_to(spec)
    assert found is not None
    return found


# -- items in the text for a shell -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "texts"),
    [
        (("sh", "-c", "T"), ["T"]),
        (("/bin/sh", "-c", "T", "sh", "x"), ["T"]),
        (("env", "A=1", "bash", "-ec", "T"), ["T"]),
        (("nice", "-n", "5", "/usr/bin/zsh", "-l", "-c", "T"), ["T"]),
        (("bash", "-lc", "T"), ["T"]),
        (("bash", "-euo", "pipefail", "-c", "T"), ["T"]),
        (("bash", "-ceuo", "pipefail", "T"), ["T"]),
        (("bash", "-o", "errexit", "-O", "extglob", "-c", "T"), ["T"]),
        (("bash", "--norc", "--rcfile", "f", "-c", "T"), ["T"]),
        (("dash", "-c", "--", "T"), ["T"]),
        (("busybox", "sh", "+x", "-c", "T"), ["T"]),
        (("timeout", "5", "sh", "-c", "T", "sh", "-c", "U"), ["T", "U"]),
        (("sh", "script.sh", "-c", "x"), []),
        (("sh", "-e", "script.sh"), []),
        (("sh", "-c"), []),
        (("python3", "-c", "print()"), []),
        (("gcc", "-c", "x.c"), []),
    ],
)
def test_the_text_for_a_shell_is_what_follows_its_option(
    words: tuple[str, ...], texts: list[str]
) -> None:
    assert texts_for_a_shell(words) == texts


@pytest.mark.parametrize(
    ("spec", "placeholder"),
    [
        (job("sh", "-c", "echo {}", items=("it's",)), "{}"),
        (job("sh", "-c", "echo '{}'", items=("a",)), "{}"),
        (job("sh", "-c", "{}", items=("ls",)), "{}"),
        (job("bash", "-c", "fit {x} {n}", items=("a", '{"x": 1}')), "{x}"),
        (job("sh", "-c", "fit {n}", items=('{"n": "$(touch x)"}',)), "{n}"),
        (job("sh", "-c", "fit {x}", items=('{"\\u0078": 1}',)), "{x}"),
        (job("sh", "-c", "echo {{{}}}", items=("a",)), "{}"),
        (job("true", cleanup=("sh", "-c", "rm {}"), items=("a",)), "{}"),
        (
            job("true", stages=(Stage(name="in", argv=("/bin/sh", "-c", "get {}")),), items=("a",)),
            "{}",
        ),
    ],
)
def test_an_item_that_would_become_code_is_refused(spec: JobSpec, placeholder: str) -> None:
    found = objection(spec)
    assert found.cause.startswith(f"{placeholder} stands in the text of sh -c")
    assert "--paste-items" in found.hint
    assert (
        objection_to(
            msgspec.structs.replace(
                spec, program=msgspec.structs.replace(spec.program, placeholders=Placeholders.PASTE)
            )
        )
        is None
    )


@pytest.mark.parametrize(
    "spec",
    [
        job("sh", "-c", 'echo "$KESTREL_ITEM"', items=("it's",)),
        job("sh", "-c", 'echo "$1"', "sh", "{}", items=("it's",)),
        job("sh", "-c", "echo {n} {i} {{}} {y} ${x}", items=("it's", '{"x": 1}')),
        job("echo", "{}", items=("it's",)),
        job("sh", "-c", "echo {}", count=5),
    ],
)
def test_what_becomes_no_code_is_taken(spec: JobSpec) -> None:
    assert objection_to(spec) is None


def test_the_answer_is_the_variable_or_an_argument() -> None:
    assert '"$KESTREL_ITEM"' in objection(job("sh", "-c", "echo {}", items=("a",))).hint
    hint = objection(job("sh", "-c", "fit {x}", items=('{"x": 1}',))).hint
    assert "sh -c '… \"$1\" …' sh {x}" in hint


@pytest.fixture
def names(tmp_path: Path) -> Path:
    path = tmp_path / "names"
    path.write_text("it's\n$(touch pwned)\n")
    return path


def test_the_command_line_refuses_it_before_anything_is_sent(names: Path) -> None:
    pool = FakePool()
    result = run(pool, "submit", "--each-line", str(names), "--", "sh", "-c", "echo {}")
    assert (result.exit_code, pool.asked) == (2, [])
    assert 'hint: write "$KESTREL_ITEM" there' in result.stderr
    words = ("submit", "--each-line", str(names), "--paste-items", "--", "sh", "-c", "echo {}")
    assert run(pool, *words).exit_code == 0
    assert pool.last(rq.SubmitJob).spec.program.placeholders is Placeholders.PASTE


def test_a_job_file_and_a_graph_say_that_items_are_meant_to_be_code(names: Path) -> None:
    path = names.with_name("j.toml")
    for head in ("", "[job.a]\n"):
        text = f"{head}command = 'echo {{}}'\neach-line = 'names'\n"
        path.write_text(text)
        result = run(FakePool(), "submit", str(path))
        assert result.exit_code == 2
        assert "--paste-items" in result.stderr
        path.write_text(f"{text}paste-items = true\n")
        assert run(FakePool(), "submit", str(path)).exit_code == 0


# -- too long --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "cause"),
    [
        (job("x", "a" * (MOST_STRING_BYTES + 1)), "word 2 of the command takes 131,072 bytes"),
        (job("x", "ü" * 70_000), "word 2 of the command takes 140,000 bytes"),
        (job("x", cleanup=("y", "a" * 200_000)), "word 2 of the cleanup takes 200,000"),
        (
            job("x", stages=(Stage(name="in", argv=("a" * 200_000,)),)),
            "word 1 of the stage in takes 200,000",
        ),
        (job("x", env={"A": "b" * 131_070}), "the environment variable A takes 131,072 bytes"),
        (job("x", "{}" * 20_000, count=2, first=10**9), "word 2 of the command takes 200,000"),
        (job("x", *["a" * 100_000] * 25), "the command and its environment take 2,500,2"),
        (job("x", items=("a", "b" * 140_000)), "the item of task 1 takes 140,000 bytes"),
        (job("x", items=("ü" * 66_000,)), "the item of task 0 takes 132,000 bytes"),
        (job("x", "{}{}", items=("b" * 70_000,)), "word 2 of the command of task 0 takes 140,000"),
        (
            job("x", "{a}{a}", items=("short", '{"a": "%s", "b": "c"}' % ("b" * 70_000))),
            "word 2 of the command of task 1 takes 140,000",
        ),
        (job("x", *["{}"] * 30, items=("b" * 100_000,)), "the command of task 0 and its environ"),
        (job("x", "a" * 200_000, placeholders=Placeholders.NONE), "word 2 of the command takes"),
    ],
)  # fmt: skip
def test_what_is_longer_than_a_program_may_get_is_refused(spec: JobSpec, cause: str) -> None:
    found = objection(spec)
    assert found.cause.startswith(cause)
    assert "and a program gets at most" in found.cause
    assert "file" in found.hint


@pytest.mark.parametrize(
    "spec",
    [
        job("x", "a" * MOST_STRING_BYTES),
        job("x", env={"A": "b" * (MOST_STRING_BYTES - 2)}),
        job("x", "{}", items=("b" * MOST_ITEM_BYTES, "c")),
        job("x", "{a}", items=('{"a": "b", "c": "%s"}' % ("b" * 130_000),)),
        job("x", "{b}" * 40, items=('{"a": "%s", "b": 1}' % ("b" * 100_000),)),
        job("x", "{}" * 60_000, placeholders=Placeholders.NONE),
    ],
)  # fmt: skip
def test_what_a_program_may_get_is_taken(spec: JobSpec) -> None:
    assert objection_to(spec) is None


def starts(argv: tuple[str, ...], **env: str) -> bool:
    """Whether Linux starts a program with these."""
    try:
        subprocess.run(argv, env=env, check=True)
    except OSError as error:
        return error.errno != errno.E2BIG
    return True


def test_the_bounds_are_those_of_linux() -> None:
    assert starts(("/bin/true", "a" * MOST_STRING_BYTES))
    assert starts(("/bin/true",), KESTREL_ITEM="a" * MOST_ITEM_BYTES)
    if os.sysconf("SC_PAGE_SIZE") == 4096:
        assert not starts(("/bin/true", "a" * (MOST_STRING_BYTES + 1)))
        assert not starts(("/bin/true",), KESTREL_ITEM="a" * (MOST_ITEM_BYTES + 1))
    each = MOST_STRING_BYTES - 9
    most = ("/bin/true", *["a" * each] * (MOST_TOGETHER_BYTES // MOST_STRING_BYTES))
    assert objection_to(job(*most)) is None
    assert starts(most)


# -- amounts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["memory", "disk"])
def test_memory_and_disk_below_a_mebibyte_are_refused(name: str) -> None:
    found = objection(job("x", request={"cpus": 1.0, name: 2048.0}))
    assert found == (
        f"2,048 bytes of {name} are less than 1 MiB, and no task runs in that",
        "it is in bytes: 2048 MiB are 2147483648",
    )
    assert objection_to(job("x", request={"cpus": 1.0, name: float(MIB)})) is None
    assert objection_to(job("x", request={"cpus": 1.0, name: 0.0})) is None


def test_so_is_what_the_next_attempt_asks_for() -> None:
    assert "512 bytes of memory" in objection(job("x", retry_memory_bytes=(512, 1024))).cause


# -- who asks --------------------------------------------------------------------------------------

CODE = job("sh", "-c", "echo {}", items=("a",))
LONG = job("x", "a" * 140_000)
SMALL = job("x", request={"cpus": 1.0, "memory": 2048.0})


@pytest.fixture
async def manager(tmp_path: Path) -> PlayedManager:
    return PlayedManager(tmp_path)


@pytest.mark.parametrize("spec", [CODE, LONG, SMALL], ids=["code", "long", "small"])
async def test_the_manager_refuses_each_with_what_to_write(
    manager: PlayedManager, spec: JobSpec
) -> None:
    answer = directions.answers.decode(await manager.ask(ADA, rq.SubmitJob(spec=spec)))
    assert isinstance(answer, an.Failed)
    assert (answer.cause, answer.hint) == objection(spec)
    line = msgspec.json.encode(GraphJob(spec=spec)).decode()
    await manager.ask(ADA, rq.UploadItems(upload="u", lines=[line]))
    answer = directions.answers.decode(await manager.ask(ADA, rq.SubmitJobs(upload="u")))
    assert not isinstance(answer, GraphSubmitted)
    assert isinstance(answer, an.Failed)
    assert (answer.cause, answer.hint) == objection(spec)
    assert manager.store.jobs() == []


async def test_items_that_were_sent_ahead_are_looked_at_too(manager: PlayedManager) -> None:
    await manager.ask(ADA, rq.UploadItems(upload="u", lines=["a", "b" * 131_059]))
    request = rq.SubmitJob(spec=job("x", "{}"), upload="u")
    answer = directions.answers.decode(await manager.ask(ADA, request))
    assert isinstance(answer, an.Failed)
    assert answer.cause is not None
    assert answer.cause.startswith("the item of task 1 takes 131,059 bytes")


@pytest.mark.parametrize("spec", [CODE, LONG, SMALL], ids=["code", "long", "small"])
def test_a_job_that_is_there_already_goes_on(spec: JobSpec) -> None:
    driver = PoolDriver()
    fields = msgspec.structs.asdict(spec)
    fields |= msgspec.structs.asdict(fields.pop("program"))
    argv, count, request = (fields.pop(each) for each in ("argv", "count", "request"))
    driver.submit(count, argv=argv, memory_bytes=int(request.get("memory", 0)), **fields)
    driver.restart()
    assert driver.pool.state.jobs[1].hold is None


async def test_a_job_of_an_earlier_client_means_what_it_meant(manager: PlayedManager) -> None:
    spec = JobSpec(program=Program(argv=("sh", "-c", "echo {}")), items=("a",))
    answer = directions.answers.decode(await manager.ask(ADA, rq.SubmitJob(spec=spec)))
    assert isinstance(answer, an.Submitted)
    assert fill(spec.program.argv, 0, 0, "a", spec.program.placeholders)[2] == "echo a"
