"""Who may ask what, and what is told to those who may not know all of it.

Each request of the protocol is in the table, so a new one must decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, get_args

import pytest
from managerkit import NOW, PlayedManager
from storekit import QuickStore

from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.model.share_change import ShareChange
from kestrelctl.core.model.worker.ad import AssetChange, WorkerAd
from kestrelctl.core.model.worker.worker_group import WorkerGroup
from kestrelctl.errors import UsageError
from kestrelctl.manager.access import Access
from kestrelctl.manager.options import ManagerOptions
from kestrelctl.metrics.exposition import written
from kestrelctl.metrics.pool_families import ManagerProcessNumbers, PoolFamilies
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import codec, directions, workers
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.answers import Overview
from kestrelctl.protocol.channels import OpenChannels, WriteToTask
from kestrelctl.protocol.commands import ListCommands, RunAtWorkers
from kestrelctl.protocol.properties import ListProperties
from kestrelctl.protocol.requests import (
    ListEvents,
    ListWorkerGroups,
    RemoveWorkerGroup,
    SetWorkerGroup,
)
from kestrelctl.protocol.triggers import EnableTrigger, ListFired, ListTriggers, TryTrigger

OWNER = "ada@users.pool/desk"
OTHER = "mallory@users.pool/desk"
ADMIN = "root@users.pool/desk"
WORKER = "w1@workers.pool/1"
STRANGER = "eve@users.elsewhere/desk"
NOBODYS = "join-1795193600-5f2c-w2@workers.pool/1"

#: A word for each thing that is the owner's alone; the last two are s-output and s-error.
SECRETS = (
    "s-name", "s-command", "s-argument", "s-variable", "s-value", "s-item", "s-cleanup", "s-key",
    "s-reason", "s-tag", "s-glob", "cy1vdXRwdXQ=", "cy1lcnJvcg==",
)  # fmt: skip
SPEC = JobSpec(
    program=Program(
        argv=("./s-command", "s-argument", "{}"),
        env={"s-variable": "s-value"},
        cleanup=("s-cleanup",),
        outputs=("s-glob",),
    ),
    name="s-name",
    count=1,
    items=("s-item",),
    requires=("s-tag",),
)
FREE = JobSpec(program=Program(argv=("true",)))

ALL, SUMMARY, REFUSED = "allowed", "summary", "refused"
ABOUT_ENVIRONMENTS = (
    rq.StartOneEnvironment(of="gpu"),
    rq.StopEnvironments(numbers=[1]),
)
ABOUT_A_FLOCK = (
    rq.AskFlock(),
    rq.ListNeighbours(),
    rq.ListFlockRules(),
    rq.JoinFlock(domain="b.test"),
    rq.ForgetPool(domain="b.test"),
    rq.LeaveFlock(),
    rq.PingPool(domain="b.test"),
    rq.SetFlockRule(rule=FlockRule(name="r", direction="lend", action="deny")),
    rq.RemoveFlockRule(name="r"),
)

#: Job 1 has failed, job 2 waits, both are the owner's. Of each request: what the owner, another
#: user and an admin get.
TABLE: list[tuple[rq.Request, str, str, str]] = [
    # Here it is in no flock.
    *((request, REFUSED, REFUSED, REFUSED) for request in (*ABOUT_A_FLOCK, *ABOUT_ENVIRONMENTS)),
    (rq.ListEnvironments(), ALL, ALL, ALL),
    (rq.SubmitJob(spec=FREE), ALL, ALL, ALL),
    (rq.SubmitLine(command="true"), ALL, ALL, ALL),
    (rq.SubmitEach(jobs=[rq.SubmitJob(spec=FREE)]), ALL, ALL, ALL),
    # Nobody has sent anything ahead under this name.
    (rq.SubmitJobs(upload="u"), REFUSED, REFUSED, REFUSED),
    (rq.UploadItems(upload="u", lines=["x"]), ALL, ALL, ALL),
    (rq.CancelJobs(jobs="2"), ALL, REFUSED, ALL),
    (rq.RetryJobs(jobs="1"), ALL, REFUSED, ALL),
    (rq.RetryJobs(jobs="1", task_ids=[99]), REFUSED, REFUSED, REFUSED),
    (rq.CancelJobs(jobs="2", task_ids=[0]), ALL, REFUSED, ALL),
    (rq.HoldJobs(jobs="2"), ALL, REFUSED, ALL),
    (rq.ReleaseJobs(jobs="2"), ALL, REFUSED, ALL),
    (rq.ScaleJob(job="2", copies=3), REFUSED, REFUSED, REFUSED),
    (rq.ForgetJobs(jobs="1"), ALL, REFUSED, ALL),
    (rq.ListJobs(), ALL, SUMMARY, ALL),
    (rq.ListJobs(jobs="1"), ALL, SUMMARY, ALL),
    (rq.ListJobs(jobs="1", details=True), ALL, SUMMARY, ALL),
    (rq.ListJobs(owner="ada@users.pool"), ALL, SUMMARY, ALL),
    (rq.Watch(jobs="1,2"), ALL, SUMMARY, ALL),
    (rq.ListTasks(job="1"), ALL, REFUSED, ALL),
    (rq.ListTasks(job="1", ids=[99]), REFUSED, REFUSED, REFUSED),
    (rq.ListOutputs(job="1"), ALL, REFUSED, ALL),
    (rq.ListOutputs(job="1", ids=[0]), ALL, REFUSED, ALL),
    (rq.ListOutputs(job="1", ids=[99]), REFUSED, REFUSED, REFUSED),
    (rq.Logs(job="1", task_id=0), ALL, REFUSED, ALL),
    (rq.Logs(job="1", task_id=0, stream="stderr"), ALL, REFUSED, ALL),
    (rq.FollowLogs(job="1", task_id=0), ALL, REFUSED, ALL),
    (rq.FollowLogs(job="2", task_id=0, stream="stderr"), ALL, REFUSED, ALL),
    (rq.AllLogs(job="1"), ALL, REFUSED, ALL),
    (rq.ExplainJob(job="2"), ALL, REFUSED, ALL),
    (rq.ExplainJob(job="1"), REFUSED, REFUSED, REFUSED),
    (rq.DrawGraph(jobs="2"), ALL, REFUSED, ALL),
    (rq.TellStory(job="1"), ALL, REFUSED, ALL),
    (rq.TellStory(job="1", task_ids=[0]), ALL, REFUSED, ALL),
    (OpenChannels(job="1"), ALL, REFUSED, ALL),
    (WriteToTask(job="1", task_id=0, attempt=0, data=b"x"), ALL, REFUSED, ALL),
    (rq.PoolOverview(), ALL, SUMMARY, ALL),
    (rq.ListJobs(used=True), ALL, SUMMARY, ALL),
    (rq.UserUsage(since=0.0), ALL, ALL, ALL),
    (rq.UserUsage(user="ada", since=0.0), ALL, REFUSED, ALL),
    (rq.UserUsage(since=0.0, by="group"), REFUSED, REFUSED, ALL),
    (rq.ListUsers(), ALL, ALL, ALL),
    (rq.ListUsers(user="ada"), ALL, REFUSED, ALL),
    (rq.ChangeUser(user="ada", change=ShareChange(weight=2.0)), REFUSED, REFUSED, ALL),
    (rq.ChangeUser(user="mallory", reset_usage=True), REFUSED, REFUSED, REFUSED),
    (rq.ListGroups(), ALL, ALL, ALL),
    (rq.ListGroups(group="physics"), REFUSED, REFUSED, ALL),
    (rq.ChangeGroup(name="physics"), REFUSED, REFUSED, ALL),
    (rq.RemoveGroup(name="physics"), REFUSED, REFUSED, REFUSED),
    (rq.PoolStatus(), ALL, ALL, ALL),
    (rq.PoolTraffic(), ALL, ALL, ALL),
    (rq.HandOver(), REFUSED, REFUSED, REFUSED),
    (rq.ListWorkers(), ALL, ALL, ALL),
    (rq.DrainWorkers(names=["w1"]), REFUSED, REFUSED, ALL),
    (rq.ResumeWorkers(names=["w1"]), REFUSED, REFUSED, ALL),
    # What an admin gets, the worker says: test_manager_resizes.py.
    (rq.ResizeWorker(name="nobody", change=AssetChange()), REFUSED, REFUSED, REFUSED),
    (rq.EnrollWorker(name="w2"), REFUSED, REFUSED, ALL),
    (rq.RevokeWorkers(names=["w1"]), REFUSED, REFUSED, ALL),
    (rq.ListPolicies(), ALL, ALL, ALL),
    (rq.SetPolicy(name="p", workers="true", text="SlotWeight = Cpus"), REFUSED, REFUSED, ALL),
    (rq.RemovePolicy(name="p"), REFUSED, REFUSED, REFUSED),
    (ListEvents(), ALL, ALL, ALL),
    (ListWorkerGroups(), ALL, ALL, ALL),
    (ListProperties(), ALL, ALL, ALL),
    # What an admin gets, triggers say: test_manager_triggers.py.
    (ListTriggers(), REFUSED, REFUSED, REFUSED),
    (ListFired(), REFUSED, REFUSED, REFUSED),
    (TryTrigger(name="t"), REFUSED, REFUSED, REFUSED),
    (EnableTrigger(name="t", enabled=False), REFUSED, REFUSED, REFUSED),
    (ListCommands(), ALL, ALL, ALL),
    # What an admin gets, the worker says: test_worker_commands.py.
    (RunAtWorkers(name="clean"), REFUSED, REFUSED, REFUSED),
    (SetWorkerGroup(group=WorkerGroup(name="g", tags=("a",))), REFUSED, REFUSED, ALL),
    (RemoveWorkerGroup(name="h"), REFUSED, REFUSED, REFUSED),
    (rq.ListAssets(), ALL, ALL, ALL),
    (rq.SetAsset(name="matlab", total=5), REFUSED, REFUSED, ALL),
    (rq.RemoveAsset(name="seats"), REFUSED, REFUSED, REFUSED),
]
ROWS = [pytest.param(*row, id=f"{type(row[0]).__name__}-{n}") for n, row in enumerate(TABLE)]

Open = Callable[..., PlayedManager]


@pytest.fixture
def start(tmp_path: Path) -> Open:
    return lambda **options: PlayedManager(tmp_path, **options)


@pytest.fixture
def start_with_history(tmp_path: Path) -> Iterator[Open]:
    """Each with a whole store of its own."""
    with ExitStack() as stores:

        def opened() -> PlayedManager:
            store = QuickStore(Path(mkdtemp(dir=tmp_path)))
            stores.callback(store.close)
            return PlayedManager(tmp_path, store=store)

        yield opened


async def at_work(manager: PlayedManager) -> PlayedManager:
    """Job 1 has failed, with output; job 2 waits. Nobody's tag is the owner's."""
    hello = workers.Hello(
        version=workers.VERSION,
        incarnation="one",
        greeting=1,
        ad=WorkerAd(tags=("s-tag", "outputs")),
    )
    await manager.work(WORKER, hello)
    await manager.ask(OWNER, rq.SubmitJob(spec=SPEC, key="s-key"))
    runs = [directions.to_worker.decode(text) for to, text in manager.sent if to == WORKER]
    [run] = [message for message in runs if isinstance(message, workers.Run)]
    result = Result(
        run.spans[0][0], 1, 0, Outcome.FAILED, NOW - 1.0, 1.0,
        exit_code=3, reason="s-reason", stdout=b"s-output", stderr=b"s-error",
        stdout_bytes=8, stderr_bytes=7,
    )  # fmt: skip
    await manager.work(WORKER, workers.Report(results=[result]))
    await manager.work(WORKER, workers.Leaving())
    await manager.ask(OWNER, rq.SubmitJob(spec=SPEC))
    assert [job.state for job in manager.store.jobs()] == ["failed", "active"]
    manager.sent.clear()
    return manager


def leaks(payload: str) -> list[str]:
    return [secret for secret in SECRETS if secret in payload]


def is_refused(payload: str) -> bool:
    return isinstance(directions.answers.decode(payload), an.Failed)


def test_every_request_is_in_the_table() -> None:
    assert {type(row[0]) for row in TABLE} == set(get_args(rq.AnyRequest))


@pytest.mark.parametrize(("request_", "owner", "other", "admin"), ROWS)
async def test_who_gets_what(
    start_with_history: Open, request_: rq.Request, owner: str, other: str, admin: str
) -> None:
    for who, expected in ((OTHER, other), (ADMIN, admin), (OWNER, owner)):
        manager = await at_work(start_with_history())
        payload = await manager.ask(who, request_)
        assert is_refused(payload) == (expected == REFUSED), (who, payload)
        if who == OTHER:
            found = "".join(text for to, text in manager.sent if to == who)
            assert leaks(found) == []
        if expected == SUMMARY:
            assert '"ada@users.pool"' in payload
    if other == SUMMARY:
        assert {"s-name", "s-command"} & set(leaks(payload)), "the owner sees it, in the same place"


@pytest.mark.parametrize(("request_", "owner", "other", "admin"), ROWS)
@pytest.mark.parametrize("who", [WORKER, NOBODYS, STRANGER, "pool", "users.elsewhere"])
async def test_others_get_nothing(
    start: Open, who: str, request_: rq.Request, owner: str, other: str, admin: str
) -> None:
    manager = await at_work(start())
    jobs = manager.store.jobs()
    answer = directions.answers.decode(await manager.ask(who, request_))
    assert isinstance(answer, an.Failed)
    assert (answer.code, answer.message) == ("not-allowed", "this account is no user of the pool")
    assert manager.store.jobs() == jobs


async def test_somebody_else_is_refused_for_that_and_not_told_more(start: Open) -> None:
    """Also where the request would fail for its owner."""
    manager = await at_work(start())
    for row in TABLE:
        request = row[0]
        if row[2] != REFUSED or not (hasattr(request, "job") or hasattr(request, "jobs")):
            continue
        answer = directions.answers.decode(await manager.ask(OTHER, request))
        assert isinstance(answer, an.Failed)
        assert answer.code == "not-allowed", request
        assert answer.message.endswith("belongs to ada@users.pool")


async def test_a_summary_says_what_a_neighbour_needs(start: Open) -> None:
    manager = await at_work(start())
    answer = directions.answers.decode(await manager.ask(OTHER, rq.ListJobs(jobs="2")))
    assert isinstance(answer, an.Jobs)
    assert answer.jobs == [
        an.JobView(
            job_id=2,
            name="",
            owner="ada@users.pool",
            state="active",
            tasks=1,
            submitted_at=NOW,
            waiting=1,
            spec=JobSpec(program=Program(argv=()), request={"cpus": 1.0}),
        )
    ]


async def test_who_watches_anothers_job_hears_of_its_end_and_no_more(start: Open) -> None:
    manager = await at_work(start())
    for who in (OTHER, OWNER):
        await manager.ask(who, rq.Watch(jobs="2"))
    await manager.ask(OWNER, rq.CancelJobs(jobs="2"))
    for who, sees in ((OTHER, ""), (OWNER, "s-name")):
        [ended] = [each for each in manager.told(who) if isinstance(each, an.Ended)]
        assert (ended.job.job_id, ended.job.state, ended.job.name) == (2, "cancelled", sees)
    assert leaks("".join(text for to, text in manager.sent if to == OTHER)) == []


async def test_a_pool_may_share_what_jobs_are_but_not_what_they_print(start: Open) -> None:
    manager = await at_work(start(share_jobs=True))
    for request in (rq.ListJobs(), rq.Watch(jobs="1"), rq.PoolOverview(), rq.ExplainJob(job="2")):
        assert "s-name" in await manager.ask(OTHER, request)
    assert not is_refused(await manager.ask(OTHER, rq.ListTasks(job="1")))
    for request in (rq.Logs(job="1", task_id=0), rq.TellStory(job="1"), rq.RetryJobs(jobs="1")):
        assert is_refused(await manager.ask(OTHER, request))


async def test_one_overview_serves_callers_who_may_see_different_things(start: Open) -> None:
    manager = await at_work(start())
    said = [await manager.ask(who, rq.PoolOverview()) for who in (OWNER, OTHER, ADMIN, OTHER)]
    assert [bool(leaks(payload)) for payload in said] == [True, False, True, False]


async def test_a_glance_shows_others_no_jobs_that_have_ended(start: Open) -> None:
    manager = await at_work(start())
    await manager.ask(OWNER, rq.CancelJobs(jobs="2"))
    for who, sees in ((OTHER, []), (OWNER, [2, 1]), (ADMIN, [2, 1])):
        glance = directions.answers.decode(await manager.ask(who, rq.PoolOverview()))
        assert isinstance(glance, Overview)
        assert [job.job_id for job in glance.ended] == sees


async def test_metrics_know_owners_and_counts_but_no_jobs(start_with_history: Open) -> None:
    """Their page asks for no password."""
    manager = await at_work(start_with_history())
    service = manager.service
    numbers = ManagerProcessNumbers(
        connected=True,
        store=service.store.statistics(),
        store_error="",
        commits=service.commit_seconds,
        certificate=None,
    )
    families = PoolFamilies(service.pool, service.stanzas, lambda: numbers, lambda: NOW)
    page = written(families()).decode()
    assert "kestrel_worker" in page
    assert leaks(page) == []


async def test_items_of_another_cannot_be_taken_by_their_name(start: Open) -> None:
    manager = start()
    await manager.ask(OWNER, rq.UploadItems(upload="u", lines=["s-item"]))
    for who in (OTHER, "ada@users.pool/another"):
        answer = await manager.ask(who, rq.SubmitJob(spec=FREE, upload="u"))
        assert is_refused(answer)
    await manager.ask(OTHER, rq.UploadItems(upload="u", lines=["x"]))
    answer = directions.answers.decode(
        await manager.ask(OWNER, rq.SubmitJob(spec=FREE, upload="u"))
    )
    assert isinstance(answer, an.Submitted)
    assert answer.tasks == 1


async def test_anothers_key_tells_nothing(start: Open) -> None:
    manager = await at_work(start())
    answer = directions.answers.decode(
        await manager.ask(OTHER, rq.SubmitJob(spec=FREE, key="s-key", watch=True))
    )
    assert isinstance(answer, an.Submitted)
    assert (answer.job_id, answer.repeated) == (3, False)


async def test_an_answer_goes_to_whoever_asked_whatever_its_id_says(
    start_with_history: Open,
) -> None:
    """Ids of requests are the askers' own: the same one of two users mixes nothing up."""
    manager = await at_work(start_with_history())
    for who, request in (
        (OWNER, rq.Logs(id="1", job="1", task_id=0)),
        (OTHER, rq.Logs(id="1", job="1", task_id=0)),
    ):
        manager.listener.on_payload(who, "jobs@pool", codec.encode(request))
    await manager.ask(OTHER, rq.PoolStatus(id="1"))
    assert [type(answer) for answer in manager.told(OWNER)] == [an.Log]
    assert sorted(type(answer).__name__ for answer in manager.told(OTHER)) == [
        "Failed",
        "PoolSummary",
    ]


async def test_a_worker_cannot_answer_what_another_was_asked(start: Open) -> None:
    """Numbers of requests for output can be guessed; who answers cannot be chosen."""
    manager = start()
    hello = workers.Hello(version=workers.VERSION, incarnation="one", greeting=1, ad=WorkerAd())
    await manager.work(WORKER, hello)
    await manager.ask(OWNER, rq.SubmitJob(spec=FREE))
    await manager.work("w2@workers.pool/1", hello)
    logs = rq.Logs(id="l", job="1", task_id=0)
    manager.listener.on_payload(OWNER, "jobs@pool", codec.encode(logs))
    forged = [workers.Output(request=str(n), offset=0, data=b"e", size_bytes=1) for n in range(20)]
    for output in forged:
        await manager.work("w2@workers.pool/1", output)
        await manager.work("w1@workers.pool/2", output)
    assert not [each for each in manager.told(OWNER) if isinstance(each, an.Log)]
    await manager.work(WORKER, workers.Output(request="1", offset=0, data=b"t", size_bytes=1))
    [log] = [each for each in manager.told(OWNER) if isinstance(each, an.Log)]
    assert (log.data, log.attempt > 0) == (b"t", True)
    for output in forged:  # nothing is asked any more
        await manager.work(WORKER, output)
    assert len([each for each in manager.told(OWNER) if isinstance(each, an.Log)]) == 1


async def test_a_worker_that_sends_more_output_than_it_was_asked_for_is_refused(
    start: Open,
) -> None:
    manager = start()
    hello = workers.Hello(version=workers.VERSION, incarnation="one", greeting=1, ad=WorkerAd())
    await manager.work(WORKER, hello)
    await manager.ask(OWNER, rq.SubmitJob(spec=FREE))
    manager.listener.on_payload(
        OWNER, "jobs@pool", codec.encode(rq.Logs(id="l", job="1", task_id=0))
    )
    await manager.settled()
    most = workers.MOST_OUTPUT_BYTES
    for n, size in enumerate((most + 1, most)):
        piece = workers.Output(request="1", offset=0, data=b"x" * size, size_bytes=size)
        await manager.work(WORKER, piece)
        logs = [each for each in manager.told(OWNER) if isinstance(each, an.Log)]
        assert [len(log.data) for log in logs] == [most] * n


@pytest.mark.parametrize(
    "options",
    [
        {"worker_hosts": ("one.pool",), "user_hosts": ("users.pool", "one.pool")},
        {"worker_hosts": ("users.pool",)},
    ],
)
def test_no_account_can_be_a_worker_and_a_user(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="workers and users"):
        Access(ManagerOptions(domain="pool", secret_file=Path(), data_dir=Path(), **options))
