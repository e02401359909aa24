"""The reasons why attempts end: every kind, and the text that travels and is stored.

A reason is one text, `kind: detail`, in messages, in the store and in answers: people read it, and
what older versions stored stays readable. Only this module makes such texts and reads them.
"""

from __future__ import annotations

import enum
from typing import NewType, Self

import msgspec

from kestrelctl.core.model.job.stage import IN, OUT, SETUP
from kestrelctl.core.model.wording import plural

#: A reason as it travels: made by `EndKind.text` and its neighbours, read by `EndReason.of`. It is
#: empty for an attempt that ended by the exit of its program, and nothing else.
ReasonText = NewType("ReasonText", str)


class Blame(enum.StrEnum):
    """The party that is to blame for an end."""

    NOBODY = "nobody"
    TASK = "task"
    USER = "user"
    MACHINE = "machine"
    POOL = "pool"


class EndKind(enum.StrEnum):
    """A cause of an attempt's end, or a fault beside its exit: its word, a sentence, the blame.

    Attributes:
        sentence: for people; docs/exit-codes.md has the same.
        fault: whose fault it is.
    """

    sentence: str
    fault: Blame

    def __new__(cls, word: str, fault: Blame, sentence: str) -> Self:
        kind = str.__new__(cls, word)
        kind._value_ = word
        kind.fault = fault
        kind.sentence = sentence
        return kind

    NONE = "", Blame.NOBODY, "Its program ended by itself."
    TIME_LIMIT = "time-limit", Blame.TASK, "It ran as long as it may."
    MEMORY_LIMIT = "memory-limit", Blame.TASK, "It used more memory than it may."
    PROCESS_LIMIT = "process-limit", Blame.TASK, "It had more processes and threads than it may."
    DISK_LIMIT = "disk-limit", Blame.TASK, "It wrote more into its scratch directory than it may."
    OUTPUT_LIMIT = "output-limit", Blame.TASK, "It printed more than a worker keeps of one task."
    DISK_FULL = "disk-full", Blame.TASK, "It failed after it had filled the worker's disk itself."
    CANNOT_START = "cannot-start", Blame.TASK, "Its command cannot be started."
    NO_INPUT = "no-input", Blame.USER, "A file that its job needs cannot be had."
    NO_ENVIRONMENT = "no-environment", Blame.USER, "The environment of its job cannot be made."
    STAGE = "stage", Blame.TASK, "A stage failed; the detail says how its last try ended."
    CLEANUP_FAILED = "cleanup-failed", Blame.TASK, "Its cleanup failed, which changes no end."
    OUTPUTS_INCOMPLETE = (
        "outputs-incomplete",
        Blame.TASK,
        "Some of what its outputs name is no file and is not stored, which changes no end.",
    )
    OUTPUTS_MISSING = "outputs-missing", Blame.TASK, "It left no file that its outputs name."
    OUTPUTS_TOO_LARGE = (
        "outputs-too-large",
        Blame.TASK,
        "It left more than a worker stores of one task.",
    )
    OUTPUTS_FAILED = "outputs-failed", Blame.USER, "Its output files cannot be stored."
    CHECKPOINT_MISSING = (
        "checkpoint-missing",
        Blame.TASK,
        "It ended to go on later and left no checkpoint.",
    )
    CHECKPOINT_FAILED = (
        "checkpoint-failed",
        Blame.USER,
        "Its checkpoint cannot be stored or fetched.",
    )
    NO_SPACE = "no-space", Blame.MACHINE, "The worker's disk is full: it runs elsewhere."
    NO_RESOURCES = (
        "no-resources",
        Blame.MACHINE,
        "The worker lacks what it takes to run it: it runs elsewhere.",
    )
    LENT_TIME = (
        "lent-time",
        Blame.POOL,
        "It ran as long as the rules of another pool let it: it runs elsewhere.",
    )
    LOST = "lost", Blame.TASK, "Several workers of another pool went away while they ran it."
    MOVED = "moved", Blame.POOL, "It was asked to stop, so that it goes on elsewhere."
    CANCELLED = "cancelled", Blame.USER, "Somebody ended it."
    DEADLINE = "deadline", Blame.USER, "The deadline of its job has passed."
    FAILED_MEMBER = "failed member", Blame.TASK, "Another member of its job has failed."
    FAILED_TASKS = "failed tasks", Blame.TASK, "More tasks of its job have failed than it bears."
    PARENT = "parent", Blame.TASK, "A job that its job waits for ended otherwise than it wants."
    OTHER = "other", Blame.TASK, "What ended it is unknown to this version: the text says it."

    @property
    def is_remark(self) -> bool:
        """Whether it only stands beside an exit, and changes nothing of it."""
        return self in _REMARKS

    @property
    def runs_elsewhere(self) -> bool:
        """Whether nothing is held against the task, because the place could not run it."""
        return self.fault in (Blame.MACHINE, Blame.POOL)

    def text(self, detail: str = "") -> ReasonText:
        """A reason of this kind, but for a stage and for lent time, which have functions.

        Args:
            detail: more about it, for people; may be empty. What cannot travel is escaped: file
                names, and what servers say, may hold bytes that are no text (surrogates).
        """
        told = detail.encode("utf-8", "backslashreplace").decode()
        return ReasonText(f"{self.value}: {told}" if told else self.value)


_REMARKS = frozenset((EndKind.CLEANUP_FAILED, EndKind.OUTPUTS_INCOMPLETE))
_NEVER_RAN = frozenset((EndKind.CANNOT_START, EndKind.NO_INPUT, EndKind.NO_ENVIRONMENT))
#: These are not read by their word alone.
_READ_OTHERWISE = frozenset((EndKind.NONE, EndKind.STAGE, EndKind.LENT_TIME, EndKind.OTHER))
_BY_WORD = {kind.value: kind for kind in EndKind if kind not in _READ_OTHERWISE}
#: The stages with a command of their own, by the beginning of their reasons.
_BY_STAGE = {f"{EndKind.STAGE.value} {name}": name for name in (SETUP, IN, OUT)}
#: Pools of any version know lent time by these words behind `no-resources`.
_LENT_TIME = "the lender's rules let a task run for"


class EndReason(msgspec.Struct, frozen=True, gc=False):
    """The parts of a reason.

    Args:
        kind: what ended the attempt.
        detail: more about it, for people. Of a stage: how its last try ended, which may be a
            reason itself. Of an unknown kind: the whole text.
        stage: which one failed; empty for any other kind.
    """

    kind: EndKind
    detail: str = ""
    stage: str = ""

    @classmethod
    def of(cls, text: str) -> EndReason:
        """Reads a reason. Whatever the text is, there is an answer.

        Args:
            text: as it was reported, or stored, also by another version.
        """
        if not text:
            return _BY_ITSELF
        word, _, detail = text.partition(":")
        detail = detail.removeprefix(" ")
        stage = _BY_STAGE.get(word, "")
        if stage:
            return cls(EndKind.STAGE, detail, stage)
        kind = _BY_WORD.get(word)
        if kind is None:
            return cls(EndKind.OTHER, text)
        if kind is EndKind.NO_RESOURCES and detail.startswith(_LENT_TIME):
            kind = EndKind.LENT_TIME
        return cls(kind, detail)

    @property
    def never_ran(self) -> bool:
        """Whether the job's own command was never started, so that it has no exit code."""
        return self.kind in _NEVER_RAN or self.stage in (SETUP, IN)

    @property
    def has_computed(self) -> bool:
        """Whether the attempt failed after its command had done well: it never runs again."""
        return self.stage == OUT


_BY_ITSELF = EndReason(EndKind.NONE)
#: The reason of an attempt that ended by itself.
NO_REASON = ReasonText("")
#: The reason of an attempt that somebody has ended.
CANCELLED = EndKind.CANCELLED.text()
#: The reason of one that was asked to stop, so that it goes on elsewhere.
MOVED = EndKind.MOVED.text()


def ended_by_itself(reason: str) -> bool:
    """Whether an attempt of this reason ended by the exit of its program, and nothing else."""
    return not reason or EndReason.of(reason).kind.is_remark


def in_stage(name: str, how: str) -> ReasonText:
    """The reason of an attempt that failed in a stage with a command of its own.

    Args:
        how: the end of its last try: a reason, or an exit in words.
    """
    return ReasonText(f"{EndKind.STAGE.value} {name}: {how}")


def out_of_lent_time(limit: str) -> ReasonText:
    """The reason of a guest that a lender has ended, because its rules let it run no longer.

    Args:
        limit: how long they let it run, with its unit.
    """
    return EndKind.NO_RESOURCES.text(f"{_LENT_TIME} {limit}")


def with_remark(reason: ReasonText, remark: ReasonText) -> ReasonText:
    """A reason with a remark after it; either may be empty."""
    return ReasonText("; ".join(filter(None, (reason, remark))))


def how_stopped(stopped_by: str, failed: int) -> str:
    """Says in words what stopped a job that nobody cancelled: `stopped by its deadline`.

    Args:
        failed: how many of its tasks have failed or are lost.
    """
    if stopped_by == EndKind.FAILED_TASKS:
        return f"stopped after {plural(failed, 'failed task')}"
    return f"stopped by its {stopped_by}"
