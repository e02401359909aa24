"""Turns an attempt of another pool into a job of this one, and its end into the attempt's."""

from __future__ import annotations

import msgspec

from kestrelctl.core.agent.agent import LocalAttempt
from kestrelctl.core.agent.held_attempt import HeldAttempt
from kestrelctl.core.model.end_reason import (
    CANCELLED,
    NO_REASON,
    EndKind,
    EndReason,
    ReasonText,
    out_of_lent_time,
)
from kestrelctl.core.model.job.guest import GuestOf
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.job.template import variables
from kestrelctl.core.model.records import TaskRecord
from kestrelctl.core.model.validate import problem_with_job
from kestrelctl.core.model.wording import plural
from kestrelctl.core.model.worker import isolation
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.assets import four_digits, natural
from kestrelctl.core.model.worker.matching_ads import amounts_ad
from kestrelctl.protocol.handout import problem_with_size
from kestrelctl.worker.run.executor import CommandSpec, Completion

#: A guest that has ended so many workers here is not tried again.
MOST_LOSSES = 3

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(HeldAttempt).decode


def guest_spec(
    command: CommandSpec,
    attempt: LocalAttempt,
    machine: WorkerAd,
    *,
    home: str,
    account: str,
    loan: str,
    rung: str,
    max_seconds: float | None,
) -> JobSpec:
    """Makes the job that runs an attempt of another pool here, as if it ran there.

    It has one task. Its command and environment are those of the attempt, filled in: a worker adds
    nothing to them but what is the machine's own.

    Args:
        machine: what a worker of the lent class has: nothing else will do.
        home: the domain of the other pool.
        account: the loan's, to which the attempt was handed.
        loan: the class.
        rung: the least isolation.
        max_seconds: the time for which the policy lets it run; None for any time.
    """
    template = attempt.template
    limits = (template.program.time_limit_seconds, max_seconds)
    used = dict(attempt.claim.amounts)
    for name, amount in attempt.limits.items():
        used[name] = max(used.get(name, 0), amount)
    held = HeldAttempt.of(attempt, account)
    return JobSpec(
        program=msgspec.structs.replace(
            command.program,
            env=variables(template, attempt.index, attempt.item, attempt.count, attempt.hosts),
            time_limit_seconds=min([limit for limit in limits if limit], default=None),
        ),
        name=template.name,
        request=natural(used),
        requires=(isolation.tag(rung), *isolation.without_isolation(machine.tags)),
        requirements=_same_machine(machine),
        max_failures=1,
        max_losses=MOST_LOSSES,
        guest=GuestOf(
            pool=home,
            job_id=template.job_id,
            user=template.owner,
            group=template.group,
            loan=loan,
            memo=_encode(held),
        ),
    )


def why_refused(spec: JobSpec, home: str) -> ReasonText:
    """Tells why a guest's job is not taken, as the reason of its attempt's end; empty if it is.

    The job has to pass what jobs of the pool's own users pass.

    Args:
        home: the domain of the other pool.
    """
    problem = problem_with_job(spec, home=home) or _not_for_guests(spec.program)
    if problem:
        return EndKind.CANNOT_START.text(f"the lender refuses it: {problem}")
    problem = problem_with_size(spec)
    if problem:
        return EndKind.NO_RESOURCES.text(f"the lender cannot send it to a worker: {problem}")
    return NO_REASON


def _not_for_guests(program: Program) -> str | None:
    """Names what of a program a pool does for its own users alone; None for nothing.

    The ad of a loan does not offer it (`lent_ad`), so no honest home asks for it.
    """
    asked = (
        (program.parent_files, "files of other jobs"),
        (program.checkpoints, "checkpoints"),
        (program.output_to, "an address for its files"),
        (program.environment, "an environment"),
        (program.channel, "a channel"),
    )
    return next((f"a guest is given no such thing: {what}" for wish, what in asked if wish), None)


def _same_machine(machine: WorkerAd) -> str:
    """Makes an expression for workers of the class: what is lent of one is taken from no other.

    On a larger machine a guest would hold a place that no lender's book has: a task that waits for
    that place would not get it back.
    """
    kinds = (("Arch", machine.arch), ("OpSys", machine.os))
    said = [f"TARGET.{name} == {_quoted(value)}" for name, value in kinds if value]
    amounts = amounts_ad(machine.assets).items()
    said += [f"TARGET.{name} == {amount!r}" for name, amount in amounts if amount]
    return " && ".join(said)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def held_of(spec: JobSpec) -> HeldAttempt | None:
    """Reads what outlived the manager's process of a guest's attempt; None if it cannot be read."""
    if spec.guest is None:
        return None
    try:
        return _decode(spec.guest.memo)
    except (msgspec.DecodeError, UnicodeError):
        return None


def lent_seconds(spec: JobSpec) -> float | None:
    """Returns how long this pool's rules let a guest run, if its home would let it run longer."""
    held, limit = held_of(spec), spec.program.time_limit_seconds
    if held is None or limit is None:
        return None
    at_home = held.template.program.time_limit_seconds
    return limit if at_home is None or limit < at_home else None


def completion_of(number: int, record: TaskRecord, asked: ReasonText, spec: JobSpec) -> Completion:
    """Tells how an attempt of another pool ended.

    An attempt that has run here as long as the rules let it, and not as long as its home does, has
    not failed: its home has it run elsewhere.

    Args:
        number: the attempt's number at its home.
        record: the record of its only task here.
        asked: the reason with which it was ended; empty if nobody asked for that.
        spec: the job that ran it here.
    """
    result = record.result
    why = EndReason.of("" if result is None else result.reason)
    limit = lent_seconds(spec)
    if result is not None and why.kind is EndKind.TIME_LIMIT and limit is not None:
        return Completion(
            number,
            reason=out_of_lent_time(f"{four_digits(limit)} s"),
            started_at=result.started_at,
            wall_seconds=max(result.wall_seconds, limit),
            cpu_seconds=result.cpu_seconds,
        )
    if record.state is TaskState.LOST:
        detail = f"{plural(record.losses, 'worker')} of the lender went away under it"
        return Completion(number, reason=EndKind.LOST.text(detail))
    if record.state is TaskState.CANCELLED or result is None:
        return Completion(number, reason=asked or CANCELLED)
    return Completion(
        number,
        exit_code=None if result.signal or why.never_ran else result.exit_code,
        signal=result.signal or None,
        reason=result.reason,
        started_at=result.started_at,
        wall_seconds=result.wall_seconds,
        cpu_seconds=result.cpu_seconds,
        peak_bytes=result.peak_bytes,
        stdout=result.stdout,
        stderr=result.stderr,
        stdout_bytes=result.stdout_bytes,
        stderr_bytes=result.stderr_bytes,
        output_files=result.output_files,
        outputs=result.outputs,
        stored_seconds=result.stored_seconds,
        stdout_stored=result.stdout_stored,
        stderr_stored=result.stderr_stored,
        stages=result.stages,
    )
