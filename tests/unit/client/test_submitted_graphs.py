"""Jobs that wait for jobs, as a program describes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cli_fake_pool import CONTEXT, FakePool, FakeShare
from msgspec.structs import replace

from kestrelctl.client import pool as client_pool
from kestrelctl.client.blocking import Client
from kestrelctl.client.graph import Graph
from kestrelctl.client.pool import AsyncClient
from kestrelctl.core.model.job.after import After, WantedEnd
from kestrelctl.errors import NotAllowed, TimedOut, UsageError
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.answers import GraphJob, GraphSubmitted


def client(fake: FakePool, share: FakeShare | None = None, **context: Any) -> Client:
    return Client(
        opens=fake.open,
        finds=lambda _: replace(CONTEXT, **context),
        opens_share=lambda _connection, _context: share or FakeShare(),
    )


def sent(fake: FakePool) -> list[GraphJob]:
    """The jobs that were sent as one."""
    upload = fake.last(rq.UploadItems)
    assert fake.last(rq.SubmitJobs).upload == upload.upload
    return [msgspec.json.decode(line, type=GraphJob) for line in upload.lines]


def submitted(graph: Graph, **context: Any) -> list[GraphJob]:
    fake = FakePool()
    with client(fake, **context) as pool:
        pool.submit_graph(graph)
    return sent(fake)


def three() -> Graph:
    graph = Graph()
    prepare = graph.add("prepare", "./prepare", memory="1G")
    graph.add("report", ["./report"], after=["fit:ended", 12], if_parent_fails="wait")
    graph.add("fit", ["./fit", "{n}"], array="1-100", after=prepare)
    return graph


def test_jobs_are_sent_as_one_and_come_back_by_their_names() -> None:
    fake = FakePool()
    with client(fake) as pool:
        jobs = pool.submit_graph(three())
    assert {name: job.id for name, job in jobs.items()} == {"prepare": 7, "fit": 8, "report": 9}
    prepare, fit, report = sent(fake)
    assert prepare.spec.program.argv == ("/bin/sh", "-c", "./prepare")
    assert (prepare.spec.name, prepare.spec.request["memory"]) == ("prepare", 2.0**30)
    assert (fit.spec.program.argv, fit.spec.count) == (("./fit", "{n}"), 100)
    assert fit.after == (After(0, 0),)
    assert report.after == (After(1, 1, WantedEnd.ENDED),)
    assert report.spec.after == (After(12, 12),)


async def test_a_coroutine_submits_them_as_well() -> None:
    fake = FakePool()
    async with AsyncClient(opens=fake.open, finds=lambda _: CONTEXT) as pool:
        jobs = await pool.submit_graph(three())
        assert (await jobs["fit"].wait()).state == "done"
    assert fake.last(rq.Watch).jobs == "8"


def test_a_job_that_is_there_is_waited_for_by_itself_or_its_number() -> None:
    fake = FakePool()
    with client(fake) as pool:
        first = pool.submit(["prepare"])
        graph = Graph()
        graph.add("a", ["fit"], after=first)
        graph.add("b", ["fit"], after=[first, "9:failed"], array="1-2")
        graph.add("c", ["fit"], after_each=first, array="1-2")
        graph.add("d", ["fit"], after_each="b", array="1-2")
        pool.submit_graph(graph)
    a, b, c, d = sent(fake)
    assert a.spec.after == (After(7, 7),)
    assert b.spec.after == (After(7, 7), After(9, 9, WantedEnd.FAILED))
    assert (c.spec.after_each, c.after_each) == (7, None)
    assert (d.spec.after_each, d.after_each, d.after) == (0, 1, ())


def test_a_job_waits_for_those_whose_files_it_wants() -> None:
    graph = Graph()
    graph.add("sum", ["sum"], input=["job:square", "job:12=older"])
    graph.add("square", ["square"], keep="*.txt", array="1-4")
    square, total = submitted(graph, own_directories=True)
    assert square.spec.program.outputs == ("*.txt",)
    assert (total.after, total.spec.after) == ((After(0, 0),), (After(12, 12),))
    placed, older = total.spec.program.parent_files
    assert (placed.name, placed.job_id, placed.placed) == ("square", 0, True)
    assert (older.name, older.job_id, older.placed) == ("older", 12, False)
    assert total.spec.program.workdir == "", "what they find is in scratch directories"


def test_jobs_with_the_same_options_have_their_own_items() -> None:
    graph = Graph()
    graph.add("letters", ["echo", "{}"], items=["a", "b"])
    graph.add("points", ["echo", "{x}"], items=[{"x": 1}])
    graph.add("one", ["echo", "one"])
    letters, points, one = submitted(graph)
    assert (letters.spec.items, letters.spec.count) == (("a", "b"), 2)
    assert (points.spec.items, points.spec.count) == (('{"x":1}',), 1)
    assert (one.spec.items, one.spec.count) == (None, 1)


def test_files_that_several_jobs_want_are_sent_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    model = tmp_path / "model.bin"
    model.write_text("model")
    (tmp_path / "words").write_text("words")
    graph = Graph()
    graph.add("a", ["fit"], input=model)
    graph.add("b", ["fit"], input=[str(model)], cpus=2, stdin="words")
    graph.add("c", ["fit"], input=[model], cpus=3)
    graph.add("d", ["fit"])
    fake, share = FakePool(), FakeShare()
    with client(fake, share) as pool:
        pool.submit_graph(graph)
    assert share.sent == [b"model", b"words"]
    programs = [job.spec.program for job in sent(fake)]
    assert [[each.name for each in program.inputs] for program in programs] == [
        ["model.bin"], ["model.bin"], ["model.bin"], [],
    ]  # fmt: skip
    assert [program.stdin is not None for program in programs] == [False, True, False, False]


def test_an_answer_that_is_lost_makes_no_second_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_pool, "PAUSES_SECONDS", (0.0, 0.0))
    answers: list[an.AnyAnswer | Exception] = [
        TimedOut(),
        GraphSubmitted(id="", job_id=7, jobs=3, tasks=102, repeated=True),
    ]

    def answer(_request: Any) -> an.AnyAnswer:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    fake = FakePool(SubmitJobs=answer)
    with client(fake) as pool:
        assert list(pool.submit_graph(three())) == ["prepare", "fit", "report"]
    [key] = {each.key for each in fake.asked if isinstance(each, rq.SubmitJobs)}
    assert key
    with client(FakePool()) as pool, pytest.raises(UsageError, match="a key has"):
        pool.submit_graph(three(), key="")


def test_a_key_of_the_program_goes_with_them() -> None:
    fake = FakePool()
    with client(fake) as pool:
        pool.submit_graph(three(), key="tuesday")
    assert fake.last(rq.SubmitJobs).key == "tuesday"


def test_what_the_pool_refuses_is_raised_as_its_error() -> None:
    fake = FakePool(SubmitJobs=NotAllowed("you may not submit"))
    with client(fake) as pool, pytest.raises(NotAllowed, match="you may not submit"):
        pool.submit_graph(three())


def waits_for_itself(graph: Graph) -> None:
    graph.add("a", ["x"], after="b")
    graph.add("b", ["x"], after="a")


def has_a_name_twice(graph: Graph) -> None:
    graph.add("a", ["x"])
    graph.add("a", ["y"])


def submit(pool: Client, describe: Callable[[Graph], object]) -> None:
    graph = Graph()
    describe(graph)
    pool.submit_graph(graph)


@pytest.mark.parametrize(
    ("describe", "says"),
    [
        pytest.param(waits_for_itself, "a → b → a", id="a circle"),
        pytest.param(has_a_name_twice, "two jobs of the graph are called 'a'", id="a name twice"),
        pytest.param(lambda g: g.add("a", []), "there is no command", id="no command"),
        pytest.param(lambda g: g.add("a", ["x"], after="b"), "after b", id="nobody"),
        pytest.param(lambda g: g.add("a", ["x"], after="last"), "`last` stands alone", id="last"),
        pytest.param(lambda g: g.add("a", ["x"], cpu=2), "job a: there is no opt", id="no option"),
        pytest.param(lambda g: g.add("a", ["x"], key="k"), "key is for", id="a key of one"),
        pytest.param(lambda g: g.add("a", ["x"], input="nowhere"), "no file nowhere", id="no file"),
        pytest.param(lambda g: g.add("a", ["x"], items=["\udc80"]), "not UTF-8", id="no text"),
        pytest.param(lambda _graph: None, "no job", id="empty"),
    ],
)
def test_what_is_no_graph_is_refused_before_anything_is_sent(
    describe: Callable[[Graph], object], says: str
) -> None:
    fake = FakePool()
    with client(fake) as pool, pytest.raises(UsageError, match=says):
        submit(pool, describe)
    assert not fake.asked
