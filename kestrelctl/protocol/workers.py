"""Messages between the pool and its workers. `docs/protocol.md` shows one of each."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, TypeAlias

import msgspec

from kestrelctl.core.environments.node_command import MOST_WORDS
from kestrelctl.core.model.files.stored_file import StoredFile
from kestrelctl.core.model.job.checkpoint import MadeCheckpoint
from kestrelctl.core.model.job.template import Template
from kestrelctl.core.model.numbers import Count, Seconds, Whole
from kestrelctl.core.model.result import Result
from kestrelctl.core.model.worker.ad import AssetChange, WorkerAd
from kestrelctl.core.model.worker.use import Use
from kestrelctl.errors import UsageError
from kestrelctl.protocol.message import Message as Message

#: Both sides name it when they meet; a worker of another version is refused with a reason.
VERSION = 6

#: (number, job id, index, n, mark), as a worker was sent it: `core.model.seal`.
ShownSeal = tuple[Count, Count, Count, Count, Count]

#: (term, epoch, mark), as a manager told it: `core.model.sealed_epoch`.
ShownEpoch = tuple[Count, Count, Count]
#: A claim charges nothing of an asset that it does not name.
Charged = Annotated[int, msgspec.Meta(ge=1, le=(1 << 63) - 1)]
#: The part of a question that its answer repeats.
Number = Annotated[str, msgspec.Meta(max_length=64)]
#: The most of a task's output that is asked for at once.
MOST_OUTPUT_BYTES = 65_536
#: No message hands out more attempts at once.
MOST_ATTEMPTS = 1_000_000
#: (number, job id, index, how many attempts, claim, mark), or the seal of such a span.
RunSpan = tuple[
    Count, Count, Count, Annotated[int, msgspec.Meta(ge=1, le=MOST_ATTEMPTS)], Count, Count
]

#: The manager keeps an incarnation of each worker and repeats it in the welcome.
MOST_INCARNATION_CHARACTERS = 64


_FIELDS = msgspec.structs.fields(Result)
_ENDING = [field.default for field in _FIELDS[Result.__struct_fields__.index("exit_code") :]]
#: The end of the result of a task that succeeded in silence: msgspec writes all fields of an array.
#: It holds empty texts, so no text contains it: quotes are escaped there.
SILENT_END = b"," + msgspec.json.encode(_ENDING).removeprefix(b"[")

# -- worker to pool
# ----------------------------------------------------------------------------------


class Hello(Message, frozen=True, kw_only=True, tag="hello"):
    """A worker joins, or answers `who`. Nothing it was sent before counts until it is welcomed.

    Attributes:
        incarnation: a random word of this worker process: after a restart it is another one.
        greeting: the number of this hello of this process; the welcome repeats it, and a welcome to
            an earlier one does not count.
        at: seconds since the epoch, by the worker's steady clock: that of its machine when it
            started, and not set since. `ends_at` of the ad is by the same clock.
        holds: (number, job id, index, claim) of each attempt that it has queued, runs or has to
            report: `claims[claim]` is what it charges, with the units that it was given once it
            runs (`"gpus/0": 1000`); a claim of -1 is that of an ended one.
        seals: show that it was handed them; each may stand for several.
        stages: (number, name of the stage) of those that are in a stage.
        wants: how many more attempts it asks for; without it, as many as the pool thinks right.
        epoch: that of the manager that welcomed this worker last, as the manager told it.
    """

    version: Count
    incarnation: Annotated[str, msgspec.Meta(max_length=MOST_INCARNATION_CHARACTERS)]
    greeting: Count = 0
    at: Seconds | None = None
    ad: WorkerAd
    holds: list[tuple[Count, Count, Count, Whole]] = []
    claims: list[dict[str, Count]] = []
    seals: list[ShownSeal] = []
    stages: list[tuple[Count, str]] = []
    wants: Count | None = None
    epoch: ShownEpoch | None = None


class Report(Message, frozen=True, kw_only=True, tag="report"):
    """Attempts that ended. Repeated after a reconnect until they are acknowledged.

    Attributes:
        seals: show that the worker was handed them; each may stand for several.
    """

    silent_end = SILENT_END

    results: list[Result]
    seals: list[ShownSeal] = []


class Heartbeat(Message, frozen=True, kw_only=True, tag="heartbeat"):
    """A sign of life, sent when nothing else was."""


class RunningUsage(Message, frozen=True, kw_only=True, tag="usage"):
    """The usage of attempts that have run for at least the interval of the welcome and still run.

    It is sent once in an interval, and not if there are none; it is a sign of life, too.
    """

    uses: list[Use]


class Staged(Message, frozen=True, kw_only=True, tag="staged"):
    """(number, name of the stage) of attempts that have begun a stage.

    It is sent at most once a second, with the latest stage of each, and is a sign of life, too.
    """

    stages: list[tuple[Count, str]]


class Returned(Message, frozen=True, kw_only=True, tag="returned"):
    """Attempts that were taken back before they started (answers `recall`, or on leaving)."""

    numbers: list[Count]


class Want(Message, frozen=True, kw_only=True, tag="want"):
    """Send up to so many attempts more than were asked for before; from a worker that pulls."""

    attempts: Count


class StoredCheckpoint(Message, frozen=True, kw_only=True, tag="checkpoint"):
    """A checkpoint of an attempt that runs here, or why it did not go on from the one it was given.

    The latest of each attempt is sent again after each welcome.

    Attributes:
        number: that of the attempt.
        made: (which one of its task it is, its files as one archive); None if there is none.
        problem: the checkpoint that it was given could not be had, so it has begun anew.
    """

    number: Count
    made: MadeCheckpoint | None = None
    problem: str = ""


class Leaving(Message, frozen=True, kw_only=True, tag="leaving"):
    """The worker finishes what it runs and takes nothing new."""


class Resized(Message, frozen=True, kw_only=True, tag="resized"):
    """The worker's capacity changes while its tasks run, which go on (or: it answers `resize`).

    Attributes:
        request: that of `resize`; empty if nobody asked.
        problem: why it does not do what was asked; then the ad is as it was.
    """

    ad: WorkerAd
    request: Number = ""
    problem: Annotated[str, msgspec.Meta(max_length=500)] = ""


class FindFiles(Message, frozen=True, kw_only=True, tag="find_files"):
    """Asks where the files are that tasks of a parent left. An attempt of this worker needs them.

    Attributes:
        number: that of the attempt.
        parent: a job whose files the attempt's own job wants.
        after: the page begins after the task with this index.
    """

    number: Count
    parent: Count
    after: Whole = -1


class Output(Message, frozen=True, kw_only=True, tag="output"):
    """A piece of a task's output (answers `fetch_output`).

    Attributes:
        data: base64 in JSON, because output need not be text; no more than was asked for.
        size_bytes: of the whole stream; None if the worker no longer has it.
    """

    request: Number
    offset: Count
    data: Annotated[bytes, msgspec.Meta(max_length=MOST_OUTPUT_BYTES)] = b""
    size_bytes: Count | None = None


# -- pool to worker
# ----------------------------------------------------------------------------------


class Welcome(Message, frozen=True, kw_only=True, tag="welcome"):
    """The worker is in.

    Attributes:
        heartbeat_seconds: the longest it may stay silent; it takes off up to a tenth at random.
        usage_seconds: how often to say what tasks use; it takes off up to a tenth at random. 0 for
            never.
        kill: attempts whose tasks are over or run elsewhere.
        epoch: that of this manager, sealed, to be repeated in each hello from now on.
    """

    incarnation: str
    greeting: int = 0
    heartbeat_seconds: float
    usage_seconds: float = 0.0
    kill: list[int] = []
    epoch: ShownEpoch | None = None


class Refused(Message, frozen=True, kw_only=True, tag="refused"):
    """A message was not accepted, and why; `code` is one of those in `docs/exit-codes.md`."""

    reason: str
    code: str = "not-allowed"
    hint: str = ""


class Who(Message, frozen=True, kw_only=True, tag="who"):
    """Say hello (again): the manager was restarted, or does not know this worker."""


class Run(Message, frozen=True, kw_only=True, tag="run"):
    """Attempts to run, in this order as far as there is room.

    Attributes:
        spans: (number, job id, index, n, claim, mark): n attempts with consecutive numbers and
            indexes; `claims[claim]` is what each is charged. Without the claim, a span is the seal
            that the worker shows when it says that it holds or ended any of them.
        claims: asset -> thousandths of its unit.
        jobs: templates of jobs that this worker has not been sent yet.
        items: for spans of jobs with items: one per attempt, in the order of the spans.
        forget: jobs that have ended.
        ack: results that are safe, as in `ack`.
        counts: (number, which attempt of its task it is) for those that are not the first.
        limits: (place of a claim, asset -> thousandths of its unit) where attempts may use more
            than they are charged. Without it they may use what they are charged.
        checkpoints: (number, the checkpoint from which it goes on) for those that go on from one.
        hosts: where the members of a job that spans workers run, in the order of their indexes; all
            attempts of the message are of that job.
    """

    spans: list[RunSpan]
    claims: list[dict[str, Charged]] = []
    jobs: list[Template] = []
    items: list[str] = []
    forget: list[int] = []
    ack: list[int] = []
    counts: list[tuple[Count, Count]] = []
    limits: list[tuple[Count, dict[str, Count]]] = []
    hosts: list[str] = []
    checkpoints: list[tuple[int, MadeCheckpoint]] = []


class Kill(Message, frozen=True, kw_only=True, tag="kill"):
    """Kill attempts; each is reported as killed, unless it ended before."""

    numbers: list[int]


class TakeCheckpoints(Message, frozen=True, kw_only=True, tag="take_checkpoints"):
    """Store the checkpoints of attempts now, because the worker shall be empty soon.

    Attributes:
        stop: ask these to stop, and store theirs when they have: they go on elsewhere. Those that
            have not started are returned.
    """

    numbers: list[int] = []
    stop: list[int] = []


class Recall(Message, frozen=True, kw_only=True, tag="recall"):
    """Return those of these attempts that have not started."""

    numbers: list[int]


class Ack(Message, frozen=True, kw_only=True, tag="ack"):
    """Forget these results; they are safe."""

    numbers: list[int]


class SetHeartbeat(Message, frozen=True, kw_only=True, tag="set_heartbeat"):
    """The pool has grown or shrunk: how often to give a sign of life from now on."""

    heartbeat_seconds: float


class Resize(Message, frozen=True, kw_only=True, tag="resize"):
    """An admin wants the worker to offer more or less, until its process ends."""

    request: Number
    change: AssetChange


class FilesFound(Message, frozen=True, kw_only=True, tag="files_found"):
    """Tells where such files are (answers `find_files`).

    Attributes:
        number, parent, after: as in the question.
        files: task id -> the archive of what the task left; only of those that left some.
        next: the next page begins after the task with this index; None if this is the last.
        problem: why nothing can be told, for good.
    """

    number: Count
    parent: Count
    after: int = -1
    files: list[tuple[int, StoredFile]] = []
    next: int | None = None
    problem: str = ""


class FetchOutput(Message, frozen=True, kw_only=True, tag="fetch_output"):
    """Send a piece of an attempt's output, for a user who wants more than the tail."""

    request: Number
    number: Count
    stream: Annotated[str, msgspec.Meta(pattern=r"^std(out|err)\Z")]
    offset: Count = 0
    limit: Count = MOST_OUTPUT_BYTES


FromWorker = (
    Hello
    | Report
    | Heartbeat
    | RunningUsage
    | Staged
    | StoredCheckpoint
    | Returned
    | Want
    | Leaving
    | Resized
    | Output
    | FindFiles
)
ToWorker = (
    Welcome
    | Refused
    | Who
    | Run
    | Kill
    | TakeCheckpoints
    | Recall
    | Ack
    | SetHeartbeat
    | Resize
    | FetchOutput
    | FilesFound
)
#: Messages of a neighbour's pool to a loan: nobody but the lender changes what it lends, and the
#: other messages to workers are of no use there.
ToLoan = Welcome | Refused | Who | Run | Kill | Recall | Ack | SetHeartbeat | FetchOutput
#: Messages of a loan: it makes no checkpoints, finds no files of parents, does not pull.
FromLoan = (
    Hello | Report | Heartbeat | RunningUsage | Staged | Returned | Leaving | Resized | Output
)


#: Longer recipes do not travel: a recipe is a list of requirements, or a page of shell.
MOST_RECIPE_CHARACTERS = 65_536
MOST_ENVIRONMENTS = 1_000

Short = Annotated[str, msgspec.Meta(max_length=1_000)]


class HeldEnvironment(msgspec.Struct, frozen=True, array_like=True):
    """An environment on a worker's machine.

    Attributes:
        of: the name of its class.
        asked_for: as its order said.
        starts: whether its program has yet to be started.
        node: whether it is no worker, as its order said.
    """

    number: Count
    of: Short
    asked_for: bool
    starts: bool
    node: bool = False


class EndedEnvironment(msgspec.Struct, frozen=True, array_like=True):
    """An environment that is gone from a worker's machine.

    Attributes:
        why: in words; empty if the pool asked for it.
    """

    number: Count
    of: Short
    why: Short


class EnvironmentsHere(Message, frozen=True, kw_only=True, tag="environments"):
    """The environments that a worker's machine makes and has; after each welcome or change.

    Attributes:
        kinds: those of environments that it can make.
        ended: those that have ended since the last time.
    """

    kinds: Annotated[list[Short], msgspec.Meta(max_length=20)]
    here: Annotated[list[HeldEnvironment], msgspec.Meta(max_length=MOST_ENVIRONMENTS)] = []
    ended: Annotated[list[EndedEnvironment], msgspec.Meta(max_length=MOST_ENVIRONMENTS)] = []


class StartEnvironment(Message, frozen=True, kw_only=True, tag="start_environment"):
    """Start an environment; answered by `environments`, when it is there and when it has gone.

    Attributes:
        number: never used before in this pool.
        of: the name of its class.
        image, recipe: as in the class; the content of a recipe's file.
        assets: what it has, in natural units: the machine's worker offers so much less meanwhile.
        start_seconds: if it is not prepared and started by then, it is given up.
        worker: the name under which its own worker joins; for a node, its name.
        jid, password: the temporary account with which that worker joins; empty for a node.
        asked_for: whether somebody asked for it.
        runs: what is started instead of a worker: then it is a node of something else.
    """

    number: Count
    of: Short
    kind: Short
    image: Short = ""
    recipe: Annotated[str, msgspec.Meta(max_length=MOST_RECIPE_CHARACTERS)] = ""
    tags: list[Short] = []
    assets: dict[str, float] = {}
    start_seconds: float
    worker: Short
    jid: Short = ""
    password: Short = ""
    asked_for: bool = False
    runs: Annotated[list[Short], msgspec.Meta(max_length=MOST_WORDS)] = []


class StopEnvironment(Message, frozen=True, kw_only=True, tag="stop_environment"):
    """Stop an environment; answered by `environments` when it has gone, also if it never was."""

    number: Count


#: Messages to a worker that makes environments.
ToHost: TypeAlias = StartEnvironment | StopEnvironment


TOKEN_VERSION = 1


class Join(Message, frozen=True, kw_only=True, tag="join"):
    """A machine that has logged in with a temporary account wants one of its own.

    Attributes:
        name: the wanted name; empty for that of the token.
    """

    version: int
    name: str = ""


class NewAccount(Message, frozen=True, kw_only=True, tag="joined"):
    """The machine is a worker now, with this account. The temporary one is deleted."""

    jid: str
    password: str


ToJoiner = NewAccount | Refused


class Token(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that a machine needs to join a pool. Whoever has it may do so, once.

    Attributes:
        host, port: those of the server, as the joining machine reaches it.
        pool: the pool's domain.
        jid, password: the temporary account, whose name says until when it holds.
        ca: certificates (PEM) of the only authorities to trust; empty for the system's.
    """

    v: int = TOKEN_VERSION
    host: str
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    tls: bool = True
    pool: str
    jid: str
    password: str
    ca: str = ""

    def encode(self) -> str:
        """The token as one word."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")


class _Version(msgspec.Struct):
    v: int = TOKEN_VERSION


def decode_token(text: str) -> Token:
    """The token in a text, which may have been broken into lines.

    Raises:
        UsageError: there is none, or one of another version.
    """
    word = "".join(text.split())
    try:
        plain = base64.b64decode(word + "=" * (-len(word) % 4), altchars=b"-_", validate=True)
        version = msgspec.json.decode(plain, type=_Version).v
        if version != TOKEN_VERSION:
            raise UsageError(
                f"this token is of version {version}, this program knows {TOKEN_VERSION}",
                hint="install the version that the pool's manager has",
            )
        return msgspec.json.decode(plain, type=Token)
    except (binascii.Error, ValueError, RecursionError, msgspec.DecodeError) as error:
        raise UsageError(
            "this is no token for joining a pool",
            cause="it is empty" if not word else str(error),
            hint="copy all of what `kestrelctl worker enroll` printed",
        ) from None
