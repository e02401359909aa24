"""A pool for tests of the command line: answers what it was told to, remembers the questions."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from msgspec.structs import replace

from kestrelctl.access.context import Account, Context
from kestrelctl.access.share import Share
from kestrelctl.at_once import TakesLonger
from kestrelctl.cli.command import Invocation
from kestrelctl.cli.main import kestrelctl
from kestrelctl.core.membership.event import MembershipEvent
from kestrelctl.core.model.files.stored_file import Piece, StoredFile
from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.refusal import Reason, Refusal
from kestrelctl.core.model.worker.worker_group import WorkerGroup
from kestrelctl.core.properties.summary import PropertySummary
from kestrelctl.errors import Busy, KestrelError, NotFound, OverQuota, TimedOut, Unreachable
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.answers import (
    EnvironmentClassView,
    EnvironmentHostView,
    EnvironmentList,
    EnvironmentView,
    EventPage,
    FlockPong,
    FlockRules,
    FlockStatus,
    GraphNode,
    GraphSubmitted,
    JobGraph,
    Neighbours,
    StartFailureView,
    WorkerGroupList,
    WorkerGroupView,
)
from kestrelctl.protocol.channels import TaskWrote
from kestrelctl.protocol.commands import CommandList, CommandResult, CommandResults, CommandView
from kestrelctl.protocol.job_answers import AttemptOutput, FollowedLog, OutputPage, TaskOutput
from kestrelctl.protocol.properties import PropertyList, PropertyView
from kestrelctl.protocol.triggers import FiredList, FiredView, TriggerList, TriggerTest, TriggerView
from kestrelctl.protocol.upload_slots import Slot
from kestrelctl.protocol.views import (
    AssetView,
    FlockView,
    GroupView,
    LentClassView,
    LoanView,
    NeighbourView,
    PolicyView,
    UserView,
)

NOW = 1_000_000.0

COMMAND = CommandView(
    name="clean-cache", parameters=(("days", "int"),), workers=2, timeout_seconds=60.0
)
TRIGGER = TriggerView(
    name="busy", expr="len(manager.clients) != 0", cmd='drain("w1")', tick_seconds=30.0,
    fired_at=NOW - 60, times=2,
)  # fmt: skip
PROPERTIES = [
    PropertyView(name="load", summary=PropertySummary(2, 1, 0.25, 1.5, 2.75)),
    PropertyView(name="site", summary=PropertySummary(3, 0)),
]

ENVIRONMENT = EnvironmentView(
    number=4194305, of="science", host="w1@workers.example.org/h", phase="ready", since=NOW - 60,
    idle_seconds=12.0, worker="env-science-2hwcx",
)  # fmt: skip
ENVIRONMENT_CLASS = EnvironmentClassView(
    name="science", kind="venv", tags=("numpy",), assets={"cpus": 1.0}, minimum=0, maximum=2,
    start_seconds=60.0, idle_seconds=300.0, waiting=12, obstacle="failed",
    hosts=[EnvironmentHostView(host="w1@workers.example.org/h", free={"cpus": 0.5}, why_not="x")],
    failures=[
        StartFailureView(
            host="w1@workers.example.org/h", times=2, at=NOW - 5, next_try_at=NOW + 15, why="no",
        ),
    ],
)  # fmt: skip
SPEC = JobSpec(program=Program(argv=("./fit", "{}")), name="sweep", count=1000, first=1)
JOB = an.JobView(
    job_id=7,
    name="sweep",
    owner="ada@example.org",
    state="active",
    tasks=1000,
    submitted_at=NOW - 65,
    waiting=998,
    running=1,
    done=1,
    spec=SPEC,
    ids="1-1000",
)
ENDED_JOB = an.JobView(
    job_id=7,
    name="sweep",
    owner="ada@example.org",
    state="done",
    tasks=1000,
    submitted_at=NOW - 65,
    ended_at=NOW - 5,
    done=1000,
    spec=SPEC,
    ids="1-1000",
)
FAILED_JOB = an.JobView(
    job_id=7,
    name="sweep",
    owner="ada@example.org",
    state="failed",
    tasks=1000,
    submitted_at=NOW - 65,
    ended_at=NOW - 5,
    done=998,
    failed=1,
    lost=1,
    spec=SPEC,
    ids="1-1000",
)


def job_with(view: an.JobView, program: dict[str, Any] | None = None, **spec: Any) -> an.JobView:
    """The same job, submitted otherwise."""
    changed = replace(view.spec.program, **(program or {}))
    return replace(view, spec=replace(view.spec, program=changed, **spec))


TASK = an.TaskView(
    index=16,
    task_id=17,
    state=TaskState.FAILED,
    worker="w1@workers.example.org/k3bW0",
    exit_code=2,
    failures=1,
    wall_seconds=1.5,
    cpu_seconds=0.04,
    peak_bytes=3 << 20,
)
WORKER = an.WorkerView(
    worker="w1@workers.example.org/k3bW0",
    state="idle",
    assets={"cpus": 4, "memory": 8 << 30},
    free={"cpus": 3.5, "memory": 8 << 30},
    tags=["LINUX"],
    done=12,
    joined_at=NOW - 3600,
)
EXPLANATION = an.JobExplanation(
    id="",
    job=JOB,
    waiting=998,
    job_reasons=[],
    obstacles=[
        an.Obstacle(
            workers=3,
            example="w1@workers.example.org/k3bW0",
            refusal=Refusal(Reason.TOO_SMALL, "64 cpus", "8 cpus", 0.56),
        ),
        an.Obstacle(
            workers=12,
            example="w2@workers.example.org/x",
            refusal=Refusal(Reason.MISSING_TAGS, "GPU", "LINUX", 0.0),
        ),
    ],
    could_run=0,
    ever=False,
)
STORY = an.Story(
    id="",
    job=ENDED_JOB,
    entries=[
        an.StoryEntry(
            at=NOW - 65, task_id=None, what="submitted", cause=JOB.owner, detail="1,000 tasks"
        ),
        an.StoryEntry(
            at=NOW - 63.75,
            task_id=17,
            what="lost",
            number=(3 << 40) + 16,
            worker="w3@workers.example.org/x",
            cause="lease",
        ),
        an.StoryEntry(
            at=NOW - 63.73,
            task_id=17,
            what="started",
            number=(3 << 40) + 1200,
            worker="w1@workers.example.org/k3bW0",
            detail="waited 0.010 s there",
        ),
        an.StoryEntry(
            at=NOW - 62.23,
            task_id=17,
            what="ended",
            number=(3 << 40) + 1200,
            worker="w1@workers.example.org/k3bW0",
            cause="done",
            detail="ran 1.500 s; exit code 0",
        ),
        an.StoryEntry(at=NOW - 5, task_id=None, what="ended", cause="done", detail="1,000 done"),
    ],
)
GPU_GROUP = WorkerGroup(name="gpu", tags=("gpu",), names=("h7-*",), where="Cpus >= 8")
EVENTS = [
    MembershipEvent(number=6, at=1_795_190_000.0, kind="join", worker="w1@hosts.pool/a"),
    MembershipEvent(
        number=7,
        at=1_795_190_060.0,
        kind="failed",
        worker="w2@hosts.pool/b",
        groups=("gpu",),
        reason="it fell silent",
    ),
]
POLICY = PolicyView(
    name="lean",
    workers="Memory >= 65536",
    text="ConsumptionMemory = quantize(TARGET.RequestMemory, {128})\n",
    in_force=3,
)
OF_POOL = AssetView(name="matlab", total=5, held=3, waiting=1200)
RUNNABLE = an.JobExplanation(
    id="", job=JOB, waiting=998, job_reasons=[], obstacles=[], could_run=2, ever=True
)
POOL = an.PoolSummary(
    id="",
    version="0.1.0",
    epoch=3,
    up_seconds=3600.0,
    workers={"idle": 900, "busy": 17},
    jobs_active=1,
    tasks_waiting=998,
    tasks_running=1,
    totals={"tasks_ended": 50_000, "leases_expired": 0},
    manager_cpu_seconds=12.0,
    manager_rss_bytes=40 << 20,
    commits=1000,
    commit_seconds_mean=0.002,
)
ENROLLED = an.Enrolled(
    id="",
    jid="join-1003600-5f2c9ae1@workers.example.org",
    password="open sesame",
    expires_at=NOW + 3600,
)
CONTEXT = Context(
    name="lab",
    pool="example.org",
    host="xmpp.example.org",
    port=5222,
    tls=True,
    user=Account("ada@users.example.org", Path("lab.password")),
    hint="",
)

OVERVIEW = an.Overview(
    id="",
    pool="pool.example.org",
    at=NOW,
    version="0.1.0",
    epoch=3,
    up_seconds=3600.0,
    workers={"idle": 2, "offline": 1},
    capacity={"cpus": 8.0, "memory": float(8 << 30)},
    free={"cpus": 8.0, "memory": float(8 << 30)},
    waiting={},
    running=0,
    queued=0,
    totals={"tasks_done": 1000, "tasks_failed": 0, "tasks_sent": 1000},
    jobs_active=0,
    jobs=[],
    ended=[
        an.JobLine(
            job_id=7,
            name="sweep",
            owner="ada@example.org",
            state="done",
            tasks=1000,
            submitted_at=NOW - 65,
            done=1000,
            ended_at=NOW - 5,
        )
    ],
    notable=[an.WorkerLine(worker="w9@workers.example.org/1", state="offline", since=NOW - 90)],
)


USED_BY_USERS = an.UsedByUsers(
    id="",
    since=950_400.0,
    users=[
        an.UserLine(
            user="ada@users.example.org",
            attempts=1010,
            tasks=1000,
            cpu_seconds=5400.0,
            wall_seconds=7200.0,
            wait_seconds=3000.0,
            memory_byte_seconds=1.5 * 2**30 * 3600,
            peak_bytes=3 << 20,
            stored_bytes=5 << 30,
            max_stored_bytes=20 << 30,
            queued_bytes=2 << 20,
            max_queued_bytes=16 << 20,
        )
    ],
)


USER = UserView(
    user="ada@users.example.org",
    group="physics",
    weight=2.0,
    share=0.25,
    running=12,
    waiting=4988,
    usage_seconds=45_000.0,
    max_running=500,
    limits={"gpus": 4.0, "fpga": 0.0},
    stored_bytes=3 << 30,
    max_stored_bytes=20 << 30,
    queued_bytes=2 << 20,
    max_queued_bytes=16 << 20,
)
GROUP = GroupView(
    group="physics",
    members=3,
    weight=3.0,
    share=0.6,
    running=30,
    waiting=4988,
    usage_seconds=90_000.0,
    max_queued=1_000_000,
    names=["ada@users.example.org", "bob@users.example.org"],
)

FREE_CLASS = LentClassView(id="0a1b2c3d4e5f", machines=3, free={"cpus": 5.5}, tags=["gpu"])
FLOCK = FlockView(
    pool="pool.example.org",
    member=True,
    joined_through=["b.example.org"],
    known=12,
    routing_table=9,
    leaf_set=4,
    willing=True,
    free=[FREE_CLASS],
    given=[
        LoanView(
            pool="c.example.org",
            loan="0a1b2c3d4e5f",
            amounts={"cpus": 2.0},
            running=2,
            since=NOW - 90,
            until=NOW + 60,
        )
    ],
    taken=[
        LoanView(
            pool="b.example.org",
            loan="5f4e3d2c1b0a",
            amounts={"cpus": 7.5},
            running=5,
            since=NOW - 600,
            until=NOW + 120,
        )
    ],
    guests_today=3,
    guests_total=1_204,
    sent=900,
    received=800,
    dropped={"old": 7, "flood": 2},
)
NEIGHBOURS = [
    NeighbourView(pool="a.example.org", state="silent", may_lend=False, why_not_lend="rule eve"),
    NeighbourView(
        pool="b.example.org",
        state="free",
        round_trip_seconds=0.0405,
        heard_ago_seconds=12.0,
        classes=[FREE_CLASS],
    ),
    NeighbourView(
        pool="c.example.org",
        state="full",
        round_trip_seconds=0.00061,
        heard_ago_seconds=4.0,
        may_borrow=False,
        why_not_borrow="denied there",
    ),
]
FLOCK_RULES = [
    FlockRule(
        name="friends",
        direction="lend",
        action="allow",
        pools=("*.example.org",),
        users=("ada", "b*"),
        requirements="RequestCpus <= 2",
        max_cpus=8.0,
        max_seconds=600.0,
        isolation="systemd",
        lease_seconds=3600.0,
    ),
    FlockRule(name="eve", direction="borrow", action="deny", order=7),
]


def log_of(data: bytes, **fields: Any) -> an.Log:
    """A piece of output that ends the stream, unless told otherwise."""
    return an.Log(id="", data=data, **{"size_bytes": len(data), **fields})


Answering = an.AnyAnswer | Exception | Callable[[Any], an.AnyAnswer]


class FakePool:
    """The in-memory twin of a connection.

    Attributes:
        answers: by kind of request: an answer, an error to raise, or a function of the request.
            What is answered by `changed` and not among them has changed what its first field names.
        ends: jobs that are pushed as ended, once somebody listens.
        frames: frames of tasks that are pushed then.
        asked: every request so far.
        opened: (pool that was wanted, whether as admin) of every connection.
    """

    def __init__(self, **answers: Answering) -> None:
        self.answers: dict[str, Answering] = {
            "SubmitJob": an.Submitted(id="", job_id=7, tasks=1000),
            "SubmitEach": lambda r: an.SubmittedEach(id="", answers=list(map(self._each, r.jobs))),
            "SubmitJobs": GraphSubmitted(id="", job_id=7, jobs=3, tasks=102),
            "DrawGraph": JobGraph(
                id="", nodes=[GraphNode(job_id=7, name="n", state="done")], edges=[]
            ),
            "UploadItems": lambda r: an.Changed(id="", what=[r.upload], tasks=len(r.lines)),
            "CancelJobs": an.Changed(id="", what=["7"], tasks=999),
            "HoldJobs": an.Changed(id="", what=["7"], tasks=998),
            "ReleaseJobs": an.Changed(id="", what=["7"], tasks=998),
            "ListJobs": an.Jobs(id="", jobs=[JOB]),
            "ListTasks": an.Tasks(id="", tasks=[TASK]),
            "ListOutputs": OutputPage(id="", tasks=[]),
            "Watch": an.Jobs(id="", jobs=[ENDED_JOB]),
            "Logs": log_of(b"hello\n"),
            "FollowLogs": FollowedLog(
                id="",
                state="done",
                piece=AttemptOutput(attempt=1, worker=WORKER.worker, over="exit code 0"),
            ),
            "AllLogs": an.LogPage(
                id="", outputs=[TaskOutput(task_id=17, data=b"hello\n", size_bytes=6)]
            ),
            "ScaleJob": an.Changed(id="", what=["7"], tasks=2),
            "RetryJobs": an.Changed(id="", what=["7"], tasks=2),
            "ExplainJob": RUNNABLE,
            "TellStory": STORY,
            "PoolTraffic": an.Traffic(id="", at=NOW, epoch=3, workers=917, messages=[]),
            "ListWorkers": an.Workers(id="", workers=[WORKER]),
            "DrainWorkers": an.Changed(id="", what=[WORKER.worker]),
            "ResumeWorkers": an.Changed(id="", what=[WORKER.worker]),
            "ResizeWorker": an.Workers(id="", workers=[WORKER]),
            "EnrollWorker": ENROLLED,
            "RevokeWorkers": an.Changed(id="", what=["w1@workers.example.org"]),
            "PoolStatus": POOL,
            "SetPolicy": an.Changed(id="", what=["lean"], tasks=3),
            "ListPolicies": an.Policies(id="", policies=[POLICY]),
            "ListAssets": an.Assets(id="", assets=[OF_POOL]),
            "PoolOverview": OVERVIEW,
            "UserUsage": USED_BY_USERS,
            "ListUsers": an.Users(id="", users=[USER]),
            "ChangeUser": an.Changed(id="", what=[USER.user]),
            "ListGroups": an.Groups(id="", groups=[GROUP]),
            "ListEvents": EventPage(id="", events=EVENTS[1:], after=7),
            "ListWorkerGroups": WorkerGroupList(
                id="", groups=[WorkerGroupView(group=GPU_GROUP, workers=2)]
            ),
            "ListProperties": PropertyList(id="", workers=3, properties=PROPERTIES[:1]),
            "ListCommands": CommandList(id="", commands=[COMMAND]),
            "RunAtWorkers": CommandResults(
                id="",
                results=[
                    CommandResult(worker="w1@workers.example.org/k3bW0", seconds=0.25, value=7)
                ],
            ),
            "ListTriggers": TriggerList(id="", triggers=[TRIGGER]),
            "ListFired": FiredList(
                id="", fired=[FiredView(at=NOW - 60, trigger="busy", actions=["drain(w1)"])]
            ),
            "TryTrigger": TriggerTest(
                id="",
                is_true=True,
                actions=["drain(w1)"],
                would_have_fired=[NOW - 60],
                recorded=10,
                recorded_since=NOW - 600,
            ),
            "SetWorkerGroup": lambda r: an.Changed(id="", what=[r.group.name], tasks=2),
            "ListEnvironments": EnvironmentList(
                id="", classes=[ENVIRONMENT_CLASS], environments=[ENVIRONMENT]
            ),
            "StartOneEnvironment": an.Changed(id="", what=["4194306"]),
            "AskFlock": FlockStatus(id="", flock=FLOCK),
            "ListNeighbours": Neighbours(id="", pools=NEIGHBOURS[1:2]),
            "HandOver": an.Changed(id="", what=["host-b"]),
            "LeaveFlock": an.Changed(id="", what=["b.example.org"]),
            "PingPool": lambda r: FlockPong(id="", pool=r.domain, seconds=0.0123),
            "ListFlockRules": FlockRules(
                id="", rules=FLOCK_RULES[:1], rest={"lend": False, "borrow": True}
            ),
            **answers,
        }
        self.ends: list[an.JobView] = []
        self.frames: list[TaskWrote] = []
        self.asked: list[rq.AnyRequest] = []
        self.opened: list[tuple[str, bool]] = []

    @asynccontextmanager
    async def open(self, wanted: str, *, as_admin: bool = False) -> AsyncIterator[FakePool]:
        self.opened.append((wanted, as_admin))
        yield self

    @asynccontextmanager
    async def open_briefly(
        self, wanted: str, *, as_admin: bool = False
    ) -> AsyncIterator[BriefFakePool]:
        brief = BriefFakePool(self)
        self.opened.append((wanted, as_admin))
        yield brief

    async def ask(
        self, request: rq.AnyRequest, timeout_seconds: float = 30.0, *, waits: bool = True
    ) -> an.AnyAnswer:
        self.asked.append(request)
        answer = self.answers.get(type(request).__name__)
        if answer is None and request.answered_by == (an.Changed,):
            answer = an.Changed(id="", what=_named_in(request))
        assert answer is not None, f"nothing answers {type(request).__name__}"
        if isinstance(answer, Exception):
            raise answer
        found = answer(request) if callable(answer) else answer
        if isinstance(request, rq.Logs) and isinstance(found, an.Log):
            return self._of_which(request, found)
        if isinstance(request, rq.SubmitJob) and isinstance(found, an.Submitted):
            return self._explained(request, found)
        return found

    def _each(self, request: rq.SubmitJob) -> an.Submitted | an.Failed:
        """The answer to one of several submissions."""
        answer = self.answers["SubmitJob"]
        found = answer(request) if callable(answer) else answer
        if isinstance(found, KestrelError):
            return an.Failed(id="", code=found.code, message=found.message)
        assert isinstance(found, an.Submitted | an.Failed)
        return found

    def _of_which(self, request: rq.Logs, log: an.Log) -> an.Log:
        """A piece of output with what the manager says of it: whose it is."""
        jobs = self.answers["ListJobs"]
        view = jobs.jobs[0] if isinstance(jobs, an.Jobs) else JOB
        task_id = view.spec.first if request.task_id is None else request.task_id
        return replace(log, job_id=view.job_id, name=view.name, task_id=task_id)

    def _explained(self, request: rq.SubmitJob, submitted: an.Submitted) -> an.Submitted:
        """The answer to a submission with what the manager adds if nothing could ever run it."""
        why = self.answers["ExplainJob"]
        if request.explain and isinstance(why, an.JobExplanation) and why.is_hopeless:
            return replace(submitted, hopeless=why)
        return submitted

    async def pushed(self) -> AsyncIterator[an.Ended]:
        for job in self.ends:
            yield an.Ended(id="", job=job)
        await asyncio.Event().wait()

    async def task_frames(self) -> AsyncIterator[TaskWrote]:
        for frame in self.frames:
            yield frame
        await asyncio.Event().wait()

    async def request_slot(self, size_bytes: int, filename: str) -> Slot:
        raise NotFound("the pool has no file share")

    async def close(self) -> None:
        """There is nothing to end."""

    def last(self, kind: type[Any]) -> Any:
        """The last request of that kind."""
        return [request for request in self.asked if isinstance(request, kind)][-1]

    def count(self, kind: type[Any]) -> int:
        """How many requests of that kind there were."""
        return sum(isinstance(request, kind) for request in self.asked)


def _named_in(request: rq.AnyRequest) -> list[str]:
    """What the first field of a request names."""
    found = getattr(request, next(each for each in request.__struct_fields__ if each != "id"))
    several = found if isinstance(found, list) else [found]
    return [str(getattr(each, "name", each)) for each in several]


class BriefFakePool(FakePool):
    """The same pool for commands of a moment, which begin anew if anything does not go well."""

    def __init__(self, pool: FakePool) -> None:
        self._pool = pool
        self._asked, self._opened = len(pool.asked), len(pool.opened)

    def forget(self) -> None:
        """Leaves what was asked in vain out of what the pool remembers."""
        del self._pool.asked[self._asked :], self._pool.opened[self._opened :]

    async def ask(
        self, request: rq.AnyRequest, timeout_seconds: float = 30.0, *, waits: bool = True
    ) -> an.AnyAnswer:
        if not request.may_repeat():
            self.forget()
            raise TakesLonger
        try:
            return await self._pool.ask(request, timeout_seconds, waits=waits)
        except (Unreachable, TimedOut, Busy) as error:
            self.forget()
            raise TakesLonger from error


class FakeShare:
    """A file share that remembers what it was sent.

    Attributes:
        sent: the content of each file, in order.
        lost: hashes of what it does not have any more.
        full: whether it takes nothing.
        meanwhile: done while a file is sent.
    """

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.lost: set[str] = set()
        self.full = False
        self.meanwhile: Callable[[], object] = lambda: None

    async def put(self, path: Path) -> StoredFile:
        if self.full:
            raise OverQuota("the pool's file share takes no more now")
        data = path.read_bytes()
        self.sent.append(data)
        self.meanwhile()
        sha256 = hashlib.sha256(data).hexdigest()
        piece = Piece(sha256=sha256, size_bytes=len(data), url=f"https://share/{len(self.sent)}")
        return StoredFile(sha256=sha256, size_bytes=len(data), pieces=(piece,) if data else ())

    async def has(self, stored: StoredFile) -> bool:
        return stored.sha256 not in self.lost

    async def get(self, stored: StoredFile, target: Path) -> None:
        raise NotFound(f"{target.name} is not in the share")

    def close(self) -> None:
        """There is nothing to close."""


def run(
    pool: FakePool,
    *args: str,
    stdin: bytes | None = None,
    context: Context = CONTEXT,
    share: Share | None = None,
    now: float = NOW,
    briefly: bool = True,
) -> Result:
    """Runs a command line against a pool, and its file share if it needs one.

    Args:
        briefly: whether commands of a moment try it without an event loop first.
    """
    invocation = Invocation(
        open_pool=pool.open,
        open_briefly=pool.open_briefly if briefly else None,
        find_context=lambda _: context,
        now=lambda: now,
    )
    if share is not None:
        invocation.open_share = lambda _connection, _context: share
    environment = {"KESTREL_OUTPUT": "", "KESTREL_POOL": "", "NO_COLOR": ""}
    return CliRunner(env=environment).invoke(
        kestrelctl, args, obj=invocation, input=stdin, prog_name="kestrelctl"
    )
