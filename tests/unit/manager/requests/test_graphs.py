"""Users submit jobs that wait for others, as one, retry them, and have them drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from jobkit import job_spec
from managerkit import PlayedManager, settled
from storekit import QuickStore

from kestrelctl.core.model.job.after import After, IfParentFails, WantedEnd
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_environment import TaskEnvironment
from kestrelctl.grammar.why_waiting import conclusion
from kestrelctl.manager.requests import graphs
from kestrelctl.manager.retention import Retention
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import directions
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.answers import GraphJob, GraphSubmitted, JobGraph

ADA = "ada@users.pool/1"
BOB = "bob@users.pool/1"
ONE = JobSpec(program=Program(argv=("true",)))
CHAIN = [GraphJob(spec=ONE), GraphJob(spec=ONE, after=(After(0, 0),))]


@pytest.fixture
async def manager(tmp_path: Path) -> PlayedManager:
    return PlayedManager(tmp_path)


async def asked(manager: PlayedManager, request: rq.Request, whom: str = ADA) -> an.AnyAnswer:
    return directions.answers.decode(await manager.ask(whom, request))


async def graph(
    manager: PlayedManager, *jobs: GraphJob, key: str = "", whom: str = ADA
) -> an.AnyAnswer:
    lines = [msgspec.json.encode(job).decode() for job in jobs]
    await asked(manager, rq.UploadItems(upload="u", lines=lines), whom)
    return await asked(manager, rq.SubmitJobs(upload="u", key=key), whom)


async def test_jobs_are_submitted_as_one(manager: PlayedManager) -> None:
    many = msgspec.structs.replace(ONE, count=5)
    found = await graph(manager, GraphJob(spec=many), CHAIN[1])
    assert isinstance(found, GraphSubmitted), found
    assert (found.job_id, found.jobs, found.tasks, found.repeated) == (1, 2, 6, False)
    assert [job.spec.after for job in manager.store.jobs()] == [(), (After(1, 1),)]


async def test_one_key_is_for_all_of_them(manager: PlayedManager) -> None:
    await graph(manager, *CHAIN, key="k")
    again = await graph(manager, *CHAIN, key="k")
    assert isinstance(again, GraphSubmitted), again
    assert (again.job_id, again.jobs, again.tasks, again.repeated) == (1, 2, 2, True)
    other = msgspec.structs.replace(CHAIN[1], spec=JobSpec(program=Program(argv=("false",))))
    refused = await graph(manager, CHAIN[0], other, key="k")
    assert isinstance(refused, an.Failed)
    assert len(manager.store.jobs()) == 2


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        ([GraphJob(spec=ONE, after=(After(0, 0),))], "it waits for job 1 of them"),
        ([CHAIN[0], GraphJob(spec=ONE, after=(After(0, 5),))], "it waits for job 6 of them"),
        ([CHAIN[0], GraphJob(spec=ONE, after=(After(-1, 0),))], "there is no job -1"),
        ([CHAIN[0], GraphJob(spec=JobSpec(program=Program(argv=())))], "the command is empty"),
    ],
)
async def test_of_jobs_with_a_fault_none_comes(
    manager: PlayedManager, jobs: list[GraphJob], said: str
) -> None:
    refused = await graph(manager, *jobs)
    assert isinstance(refused, an.Failed), refused
    assert said in refused.cause
    assert manager.store.jobs() == []


async def test_too_many_jobs_are_refused(
    manager: PlayedManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "MOST_JOBS", 1)
    refused = await graph(manager, *CHAIN)
    assert isinstance(refused, an.Failed), refused
    assert (refused.message, refused.cause) == (
        "2 jobs cannot be submitted as one",
        "1 is the most",
    )


async def test_another_user_s_jobs_are_unknown(manager: PlayedManager) -> None:
    await graph(manager, *CHAIN)
    spec = msgspec.structs.replace(ONE, after=(After(1, 1),))
    refused = await asked(manager, rq.SubmitJob(spec=spec), BOB)
    assert isinstance(refused, an.Failed), refused
    assert (refused.code, refused.message) == ("not-found", "there is no job 1")


async def test_a_retry_brings_back_what_waited_for_it(manager: PlayedManager) -> None:
    last = GraphJob(spec=ONE, after=(After(1, 1),))
    aside = GraphJob(spec=ONE, after=(After(0, 0, WantedEnd.FAILED),))
    await graph(manager, *CHAIN, last, aside)
    await asked(manager, rq.CancelJobs(jobs="1"))
    assert [job.state for job in manager.store.jobs()] == ["cancelled"] * 3 + ["active"]
    changed = await asked(manager, rq.RetryJobs(jobs="1"))
    assert isinstance(changed, an.Changed), changed
    assert (changed.what, changed.tasks) == (["1", "2", "3"], 3)
    assert [job.state for job in manager.store.jobs()] == ["active"] * 4


def paired(place: int | None = None, count: int = 3, **spec: Any) -> GraphJob:
    """A job of some tasks, perhaps each behind one of the job at this place."""
    return GraphJob(spec=job_spec(count=count, **spec), after_each=place)


async def test_tasks_of_one_job_wait_for_those_of_another(manager: PlayedManager) -> None:
    await graph(manager, paired(), paired(0), paired(1))
    assert [job.spec.after_each for job in manager.store.jobs()] == [0, 1, 2]
    drawn = await asked(manager, rq.DrawGraph(jobs="2"))
    assert isinstance(drawn, JobGraph), drawn
    assert [(node.job_id, node.state) for node in drawn.nodes][1:] == [
        (2, "waiting"),
        (3, "waiting"),
    ]
    assert [msgspec.structs.astuple(edge) for edge in drawn.edges] == [
        (2, 1, 1, "each"),
        (3, 2, 2, "each"),
    ]
    why = await asked(manager, rq.ExplainJob(job="2"))
    assert isinstance(why, an.JobExplanation), why
    assert why.waiting == 3
    assert conclusion(why)[0].startswith("it waits task by task for job 1: 0 tasks free")


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (paired(1), "it waits for job 2 of them, which comes no earlier"),
        (paired(-1), "its tasks wait for those of one job"),
        (paired(0, after_each=7), "its tasks wait for those of one job"),
        (paired(0, count=4), "it has 4 tasks, and a has 3"),
        (paired(0, service=True), "tasks of a service do not wait"),
        (
            msgspec.structs.replace(paired(0), after=(After(0, 0),)),
            "it waits for all of job 1 of them",
        ),
    ],
)
async def test_what_cannot_wait_task_by_task_is_refused(
    manager: PlayedManager, job: GraphJob, said: str
) -> None:
    refused = await graph(manager, paired(name="a"), job)
    assert isinstance(refused, an.Failed), refused
    assert said in (refused.cause or refused.message)
    assert manager.store.jobs() == []


async def test_a_retry_brings_back_tasks_behind_tasks_also_of_jobs_that_have_ended(
    manager: PlayedManager,
) -> None:
    aside = paired(0, if_parent_fails=IfParentFails.RUN, held=True)
    await graph(manager, paired(), paired(0), paired(1), aside)
    await asked(manager, rq.CancelJobs(jobs="1"))
    assert [job.state for job in manager.store.jobs()] == ["cancelled"] * 3 + ["active"]
    assert [job.cancelling for job in manager.store.jobs()] == [True, False, False, False]
    changed = await asked(manager, rq.RetryJobs(jobs="1"))
    assert isinstance(changed, an.Changed), changed
    assert (changed.what, changed.tasks) == (["1", "2", "3"], 9)
    assert [job.state for job in manager.store.jobs()] == ["active"] * 4


async def test_a_job_whose_tasks_came_back_with_its_parent_s_may_be_named_as_well(
    manager: PlayedManager,
) -> None:
    await graph(manager, paired(), paired(0), paired(0, if_parent_fails=IfParentFails.WAIT))
    await asked(manager, rq.CancelJobs(jobs="1"))
    changed = await asked(manager, rq.RetryJobs(jobs="1-3"))
    assert isinstance(changed, an.Changed), changed
    assert [job.state for job in manager.store.jobs()] == ["active"] * 3


async def test_tasks_that_are_in_vain_are_cancelled_to_whoever_asks(
    manager: PlayedManager,
) -> None:
    await graph(manager, paired(), paired(0, name="behind"))
    await asked(manager, rq.CancelJobs(jobs="1"))
    tasks = await asked(manager, rq.ListTasks(job="2"))
    assert isinstance(tasks, an.Tasks), tasks
    assert [task.state for task in tasks.tasks] == ["cancelled"] * 3
    refused = await asked(manager, rq.RetryJobs(jobs="2"))
    assert isinstance(refused, an.Failed), refused
    assert refused.hint == "`kestrelctl job retry 1` brings both back"


async def test_a_job_is_not_forgotten_while_tasks_wait_for_its_tasks(
    tmp_path: Path, quick_store: QuickStore
) -> None:
    manager = PlayedManager(tmp_path, store=quick_store)
    wait = IfParentFails.WAIT
    await graph(manager, paired(), paired(0, if_parent_fails=wait), paired())
    await asked(manager, rq.CancelJobs(jobs="1,3"))
    refused = await asked(manager, rq.ForgetJobs(jobs="1"))
    assert isinstance(refused, an.Failed), refused
    assert refused.message == "tasks of job 2 wait for those of job 1"
    changed = await asked(manager, rq.ForgetJobs(jobs="1,3"))
    assert isinstance(changed, an.Changed), changed
    assert (changed.what, changed.kept) == (["3"], 1)
    manager.now += 10_000.0
    assert not await Retention(manager.service, 100.0, None).look()
    await asked(manager, rq.CancelJobs(jobs="2"))
    assert await Retention(manager.service, 100.0, None).look()
    await settled()
    assert 1 not in manager.store.job_ids()


async def test_what_another_failed_parent_stops_stays(manager: PlayedManager) -> None:
    both = GraphJob(spec=ONE, after=(After(0, 1),))
    await graph(manager, CHAIN[0], CHAIN[0], both)
    await asked(manager, rq.CancelJobs(jobs="1,2"))
    changed = await asked(manager, rq.RetryJobs(jobs="2"))
    assert isinstance(changed, an.Changed), changed
    assert changed.what == ["2"]
    changed = await asked(manager, rq.RetryJobs(jobs="1"))
    assert isinstance(changed, an.Changed), changed
    assert changed.what == ["1", "3"]


async def test_a_job_is_drawn_with_all_before_and_behind_it(manager: PlayedManager) -> None:
    await graph(manager, *CHAIN, GraphJob(spec=ONE, after=(After(1, 1, WantedEnd.ENDED),)))
    await graph(manager, *CHAIN)
    drawn = await asked(manager, rq.DrawGraph(jobs="2"))
    assert isinstance(drawn, JobGraph), drawn
    assert [(node.job_id, node.state) for node in drawn.nodes] == [
        (1, "active"),
        (2, "waiting"),
        (3, "waiting"),
    ]
    assert [tuple(edge) for edge in map(msgspec.structs.astuple, drawn.edges)] == [
        (2, 1, 1, WantedEnd.OK),
        (3, 2, 2, WantedEnd.ENDED),
    ]
    assert not drawn.more


async def test_of_a_large_graph_a_part_is_drawn(
    manager: PlayedManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "MOST_DRAWN", 2)
    await graph(manager, *CHAIN, GraphJob(spec=ONE, after=(After(1, 1),)))
    drawn = await asked(manager, rq.DrawGraph(jobs="1"))
    assert isinstance(drawn, JobGraph), drawn
    assert ([node.job_id for node in drawn.nodes], drawn.more) == ([1, 2], True)


async def test_another_user_s_graph_is_not_drawn(manager: PlayedManager) -> None:
    await graph(manager, *CHAIN)
    refused = await asked(manager, rq.DrawGraph(jobs="1"), BOB)
    assert isinstance(refused, an.Failed), refused
    assert refused.code == "not-allowed"


async def test_a_recipe_counts_for_what_a_job_takes_in_a_message(manager: PlayedManager) -> None:
    """The manager adds it to what the user has sent; a worker gets all of it."""
    recipe = "r" * 60_000
    manager.dispatcher._graphs.inside = lambda environment: TaskEnvironment(
        environment.of, "venv", recipe
    )
    large = JobSpec(program=Program(argv=("x" * 480_000,), environment=TaskEnvironment("science")))
    assert isinstance(await graph(manager, GraphJob(spec=ONE)), GraphSubmitted)
    refused = await graph(manager, GraphJob(spec=ONE), GraphJob(spec=large))
    assert isinstance(refused, an.Failed)
    assert "is the most" in (refused.cause or "")
    assert len(manager.store.jobs()) == 1
