"""Files with several jobs, and drawings of who waits for whom."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cli_fake_pool import ENDED_JOB, JOB, FakePool, job_with, run

from kestrelctl.cli.job import graph, wait
from kestrelctl.cli.job.on_end import variables_of_several
from kestrelctl.core.model.job.after import After, IfParentFails, WantedEnd
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.grammar.id_ranges import parse_tasks
from kestrelctl.protocol import answers as an
from kestrelctl.protocol.answers import GraphEdge, GraphJob, GraphNode, GraphSubmitted, JobGraph
from kestrelctl.protocol.requests import (
    DrawGraph,
    ListJobs,
    SubmitJob,
    SubmitJobs,
    UploadItems,
    Watch,
)

THREE = """
memory = "1G"
[job.prepare]
command = "./prepare"
[job.fit]
command = ["./fit", "{n}"]
array = "1-100"
after = "prepare"
[job.report]
command = ["./report"]
after = ["fit:ended", 12]
if-parent-fails = "wait"
memory = "2G"
"""


def sent(tmp_path: Path, text: str, *args: str) -> list[GraphJob]:
    file = tmp_path / "flow.toml"
    file.write_text(text)
    pool = FakePool()
    result = run(pool, "submit", str(file), *args)
    assert result.exit_code == 0, result.stderr
    [upload] = [request for request in pool.asked if isinstance(request, UploadItems)]
    assert pool.last(SubmitJobs).upload == upload.upload
    return [msgspec.json.decode(line, type=GraphJob) for line in upload.lines]


def refused(tmp_path: Path, text: str, *args: str) -> str:
    file = tmp_path / "flow.toml"
    file.write_text(text)
    pool = FakePool()
    result = run(pool, "submit", str(file), *args)
    assert result.exit_code == 2
    assert not pool.asked, "nothing is sent that is wrong"
    return result.stderr


def test_jobs_of_a_file_are_sent_as_one(tmp_path: Path) -> None:
    prepare, fit, report = sent(tmp_path, THREE)
    assert (prepare.spec.name, prepare.spec.request["memory"]) == ("prepare", 2**30)
    assert (fit.spec.program.argv, fit.spec.count, fit.after) == (
        ("./fit", "{n}"),
        100,
        (After(0, 0),),
    )
    assert report.after == (After(1, 1, WantedEnd.ENDED),)
    assert report.spec.after == (After(12, 12),)
    assert report.spec.if_parent_fails is IfParentFails.WAIT
    assert report.spec.request["memory"] == 2 * 2**30


def test_a_job_of_a_file_names_the_one_for_whose_tasks_it_waits(tmp_path: Path) -> None:
    text = """
    array = "1-9"
    [job.fit]
    command = "./fit"
    after-each = "prepare"
    after = "aside"
    [job.prepare]
    command = "./prepare"
    after-each = 12
    [job.aside]
    command = "./aside"
    """
    prepare, aside, fit = sent(tmp_path, text)
    assert (prepare.spec.after_each, prepare.after_each) == (12, None)
    assert (fit.spec.after_each, fit.after_each, fit.after) == (0, 0, (After(1, 1),))
    assert aside.after_each is None


def test_options_on_the_line_win_over_those_of_every_job(tmp_path: Path) -> None:
    assert {job.spec.priority for job in sent(tmp_path, THREE, "--priority", "7")} == {7}
    memory = {job.spec.request["memory"] for job in sent(tmp_path, THREE, "--memory", "3G")}
    assert memory == {3 * 2**30}


def test_what_was_submitted_is_told(tmp_path: Path) -> None:
    file = tmp_path / "flow.toml"
    file.write_text(THREE)
    result = run(FakePool(), "submit", str(file))
    assert result.stdout == "jobs 7-9: 3 jobs, 102 tasks\n"
    told = json.loads(run(FakePool(), "-o", "json", "submit", str(file)).stdout)
    assert told == {"job_id": 7, "jobs": 3, "tasks": 102, "repeated": False}


def test_all_jobs_of_a_file_can_be_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "flow.toml"
    file.write_text(THREE)
    pool = FakePool(Watch=an.Jobs(id="", jobs=[ENDED_JOB]))
    assert run(pool, "submit", str(file), "--wait").exit_code == 0
    assert pool.last(Watch).jobs == "7-9"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[job.a]\ncommand = "x"\nafter = "b"\n[job.b]\ncommand = "x"\nafter = "a"', "a → b → a"),
        ('[job.a]\ncommand = "x"\nafter-each = "bb"', "after each task of bb, which is no job"),
        ('[job.a]\ncommand = "x"\nafter = "bb"', "job a is after bb, which is no job"),
        ('[job.a]\nafter = "b"', "job a: there is no command"),
        ('[job.a]\ncommand = "x"\npriorty = 3', "unknown key priorty"),
        ('[job.a]\ncommand = "x"\nmemory = "many"', "job a: "),
        ("job = 3", "job is not a table"),
        ("[job]", "has no job"),
    ],
)
def test_a_file_that_says_something_wrong_is_refused(tmp_path: Path, text: str, said: str) -> None:
    assert said in refused(tmp_path, text)


def test_what_nobody_would_read_of_a_line_is_refused(tmp_path: Path) -> None:
    assert "a job file takes no words of a command" in refused(tmp_path, THREE, "--", "sleep", "9")
    said = refused(tmp_path, THREE, "--name", "mine")
    assert "--name is for one job" in said
    assert "[job.NAME]" in said
    assert "job fetch JOB" in refused(tmp_path, THREE, "--stdout", "out")


def test_too_many_jobs_are_refused_before_anything_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kestrelctl.client.graph_sending.MOST_JOBS", 2)
    said = refused(tmp_path, THREE)
    assert "3 jobs cannot be submitted as one" in said
    assert "2 is the most" in said


def test_a_single_job_names_what_it_waits_for(tmp_path: Path) -> None:
    def spec(*args: str) -> JobSpec:
        pool = FakePool()
        result = run(pool, "submit", *args)
        assert result.exit_code == 0, result.stderr
        found: JobSpec = pool.last(SubmitJob).spec
        return found

    line = spec("--after", "3", "--after", "5-9:failed", "--", "true")
    assert line.after == (After(3, 3), After(5, 9, WantedEnd.FAILED))
    file = tmp_path / "one.toml"
    file.write_text('command = "x"\nafter = ["3:ended", 4]\nif-parent-fails = "run"')
    from_file = spec(str(file))
    assert from_file.after == (After(3, 3, WantedEnd.ENDED), After(4, 4))
    assert from_file.if_parent_fails is IfParentFails.RUN
    assert spec("--after-each", "3", "--", "true").after_each == 3
    file.write_text('command = "x"\nafter-each = 4')
    assert spec(str(file)).after_each == 4


@pytest.mark.parametrize("word", ["0", "x", "3-4", "3:ended"])
def test_tasks_wait_for_those_of_one_job(word: str) -> None:
    result = run(FakePool(), "submit", "--after-each", word, "--", "true")
    assert result.exit_code == 2
    assert "not a job whose tasks can be waited for" in result.stderr


def test_job_info_names_the_job_for_whose_tasks_a_job_waits() -> None:
    view = job_with(ENDED_JOB, after_each=4)
    result = run(FakePool(ListJobs=an.Jobs(id="", jobs=[view])), "job", "info", "7")
    assert re.search(r"after each +task of job 4", result.stdout)


# -- drawings --------------------------------------------------------------------------------------

GRAPH = JobGraph(
    id="",
    nodes=[
        GraphNode(job_id=3, name='the "first"', state="done", ended=1),
        GraphNode(job_id=4, name="fit", state="active", tasks=1000, ended=400),
        GraphNode(job_id=5, name="report", state="waiting"),
    ],
    edges=[
        GraphEdge(4, 2, 3, WantedEnd.OK),
        GraphEdge(5, 3, 3, "each"),
        GraphEdge(5, 4, 4, WantedEnd.ENDED),
    ],
)


def drawn(*args: str, **answers: Any) -> tuple[FakePool, Any]:
    pool = FakePool(**({"DrawGraph": GRAPH} | answers))
    return pool, run(pool, "job", "graph", "4", *args)


def test_a_graph_is_drawn_as_text() -> None:
    pool, result = drawn()
    assert pool.last(DrawGraph).jobs == "4"
    assert [line.rstrip() for line in result.stdout.splitlines()] == [
        "JOB    NAME         STATE        ENDED  AFTER",
        '3      the "first"  done           1/1',
        "  4    fit          active   400/1,000  2-3",
        "    5  report       waiting        0/1  3:each, 4:ended",
    ]


def test_a_graph_is_written_for_graphviz() -> None:
    _, result = drawn("--dot")
    assert result.stdout.splitlines() == [
        "digraph jobs {",
        '  node [shape=box, style="rounded,filled"];',
        '  3 [label="3 the \\"first\\"\\ndone 1/1", fillcolor=palegreen];',
        '  4 [label="4 fit\\nactive 400/1,000", fillcolor=lightskyblue];',
        '  5 [label="5 report\\nwaiting 0/1", fillcolor=white];',
        "  3 -> 4;",
        '  3 -> 5 [label="each"];',
        '  4 -> 5 [label="ended"];',
        "}",
    ]


def test_graphviz_draws_it_into_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "dot"
    program.write_text('#!/bin/sh\necho "$1" > "$3"; cat >> "$3"\n')
    program.chmod(0o755)
    monkeypatch.setattr(graph.shutil, "which", lambda name: str(program))
    svg = tmp_path / "x.svg"
    _, result = drawn("--svg", str(svg))
    assert result.exit_code == 0, result.stderr
    assert svg.read_text().startswith("-Tsvg\ndigraph jobs {")


def test_without_graphviz_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph.shutil, "which", lambda name: None)
    pool, result = drawn("--svg", "x.svg")
    assert (result.exit_code, pool.asked) == (2, [])
    assert "no program `dot`" in result.stderr
    assert "--dot" in result.stderr


def test_that_graphviz_failed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "dot"
    program.write_text("#!/bin/sh\ncat > /dev/null; echo no such folder >&2; exit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(graph.shutil, "which", lambda name: str(program))
    _, result = drawn("--svg", "/nowhere/x.svg")
    assert result.exit_code != 0
    assert "no such folder" in result.stderr


def test_that_there_are_more_is_told() -> None:
    more = msgspec.structs.replace(GRAPH, more=True)
    _, result = drawn(DrawGraph=more)
    assert "only 3 jobs are shown" in result.stderr


def test_the_latest_job_is_asked_for_once_and_before_anything_is_sent(tmp_path: Path) -> None:
    file = tmp_path / "flow.toml"
    file.write_text('[job.a]\ncommand = "x"\n[job.b]\ncommand = "x"\nafter = ["last:ended", "a"]\n')
    pool = FakePool()
    assert run(pool, "submit", str(file), "--after", "last:ended").exit_code == 0
    latest = JOB.job_id
    [upload] = [request for request in pool.asked if isinstance(request, UploadItems)]
    jobs = [msgspec.json.decode(line, type=GraphJob) for line in upload.lines]
    ended = After(latest, latest, WantedEnd.ENDED)
    assert [job.spec.after for job in jobs] == [(ended,), (ended,)]
    assert [request.jobs for request in pool.asked if isinstance(request, ListJobs)] == ["last"]


def test_a_job_waits_for_the_latest_one(tmp_path: Path) -> None:
    pool = FakePool()
    result = run(pool, "submit", "--after", "last:ended", "--pool", "other", "--", "true")
    assert result.exit_code == 0, result.stderr
    latest = JOB.job_id
    assert pool.last(SubmitJob).spec.after == (After(latest, latest, WantedEnd.ENDED),)
    assert pool.opened == [("other", False)] * 2


def test_a_submission_that_may_be_repeated_names_the_job_it_waits_for(tmp_path: Path) -> None:
    file = tmp_path / "flow.toml"
    file.write_text('[job.a]\ncommand = "x"\nafter = "last"\n')
    for words in (("--after", "last", "--", "true"), (str(file),)):
        pool = FakePool()
        result = run(pool, "submit", "--key", "k", *words)
        assert result.exit_code == 2
        assert "`last` and --key do not go together" in result.stderr
        assert not any(isinstance(request, (SubmitJob, SubmitJobs)) for request in pool.asked)


class Watched:
    """Jobs with ids in a row that end when each was asked for so often.

    Attributes:
        asked: how many jobs each request was about.
        firsts: the first of them.
    """

    def __init__(self, jobs: int, looks: int) -> None:
        self.asked: list[int] = []
        self.firsts: list[int] = []
        self._jobs = jobs
        self._looks = dict.fromkeys(range(1, jobs + 1), looks)

    def __call__(self, request: Watch) -> an.Jobs:
        ids = parse_tasks(request.jobs)
        assert len(ids) <= 500
        self.asked.append(len(ids))
        self.firsts.append(min(ids))
        views = []
        for job_id in ids:
            self._looks[job_id] -= 1
            state = "active" if self._looks[job_id] > 0 else "done"
            views.append(msgspec.structs.replace(ENDED_JOB, job_id=job_id, state=state))
        return an.Jobs(id="", jobs=views)

    def submitted(self, tmp_path: Path, *words: str) -> Any:
        file = tmp_path / "flow.toml"
        lines = [f"[job.j{n}]\ncommand = 'true'\n" for n in range(self._jobs)]
        file.write_text("".join(lines))
        answer = GraphSubmitted(id="", job_id=1, jobs=self._jobs, tasks=self._jobs)
        return run(FakePool(Watch=self, SubmitJobs=answer), "submit", str(file), *words)


def test_more_jobs_are_waited_for_than_one_request_can_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait, "INTERVAL_SECONDS", 0.0)
    watched = Watched(1_201, looks=2)
    result = watched.submitted(tmp_path, "--wait")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "1,201 jobs ended: 1,201 done\n"
    assert watched.asked[:3] == [500, 500, 201]
    assert sum(watched.asked) == 2 * 1_201, "jobs that have ended are not asked for again"


def test_jobs_that_go_on_for_long_hide_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait, "INTERVAL_SECONDS", 0.0)
    watched = Watched(1_000, looks=4)
    assert watched.submitted(tmp_path, "--wait").exit_code == 0
    assert watched.asked == [500] * 8
    assert watched.firsts == [1, 501] * 4


def test_the_command_at_the_end_of_a_graph_is_run_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    say = "echo $KESTREL_JOB $KESTREL_OUTCOME $KESTREL_TASKS $KESTREL_DONE"
    result = Watched(3, looks=1).submitted(tmp_path, "--on-end", say)
    assert result.exit_code == 0, result.stderr
    tasks = 3 * ENDED_JOB.tasks
    assert capfd.readouterr().err == f"1-3 done {tasks} {tasks}\n"


@pytest.mark.parametrize(
    ("states", "outcome"),
    [
        (("done", "done"), "done"),
        (("done", "cancelled"), "cancelled"),
        (("cancelled", "failed", "done"), "failed"),
    ],
)
def test_what_became_of_several_jobs_is_the_worst_of_them(
    states: tuple[str, ...], outcome: str
) -> None:
    views = [msgspec.structs.replace(ENDED_JOB, state=state) for state in states]
    assert variables_of_several("1-3", views)["KESTREL_OUTCOME"] == outcome


def test_of_many_jobs_those_are_told_that_ended_badly() -> None:
    views = [msgspec.structs.replace(ENDED_JOB, job_id=n) for n in range(1, 502)]
    views[6] = msgspec.structs.replace(views[6], state="failed")
    total, bad = wait.sentences(views)
    assert total == "501 jobs ended: 500 done"
    assert bad.startswith("job 7 failed: ")
    assert len(wait.sentences(views[:500])) == 500
