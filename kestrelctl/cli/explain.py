"""Why tasks of a job wait, in words: for `job explain`, `job list` and `submit`."""

from __future__ import annotations

import click

from kestrelctl.cli.command import CliCommand, Invocation, pass_invocation
from kestrelctl.cli.command_output import CommandOutput, Record, Table, plain
from kestrelctl.cli.connection import Connection, ask
from kestrelctl.cli.grid import Grid
from kestrelctl.cli.id_ranges import parse_job
from kestrelctl.cli.quantities import short_address
from kestrelctl.core.model.plural import plural
from kestrelctl.core.model.refusal import Reason, Refusal
from kestrelctl.protocol.answers import JobExplanation, Obstacle
from kestrelctl.protocol.requests import ExplainJob

_SENTENCES = {
    Reason.MAX_RUNNING: "as many of its tasks run as --max-running allows",
    Reason.BACKOFF: "tasks that failed pause before they are tried again",
    Reason.ALL_STARTED: "all of its tasks have started",
    Reason.CANCELLING: "it is being cancelled",
    Reason.RECOVERING: "the manager has just started, and its workers have not all spoken yet",
    Reason.NO_WORKERS: "there are no workers",
    Reason.STORE_FAILING: "the manager cannot write its store, so nothing is handed out",
}
_STATES = {
    Reason.BUSY: "busy",
    Reason.OFFLINE: "offline",
    Reason.DRAINING: "draining",
    Reason.QUARANTINED: "quarantined",
}


@click.command("explain", cls=CliCommand)
@click.argument("job", type=parse_job, metavar="JOB")
@pass_invocation
def explain(invocation: Invocation, job: str) -> None:
    """Why tasks of a job wait, worker by worker, the closest fit first."""

    async def work(connection: Connection) -> CommandOutput:
        return report(await ask(connection, ExplainJob(job=job), JobExplanation))

    invocation.talk(work)


def report(explanation: JobExplanation) -> Record:
    """The explanation as a table, and its conclusion."""
    why, hint = conclusion(explanation)
    job = explanation.job
    name = f" ({job.name})" if job.name else ""
    sentence = f"job {job.job_id}{name}: {plural(explanation.waiting, 'task')} waiting"
    blocks: list[tuple[str, str] | Table | str] = [sentence]
    blocks += [f"  {_reason_text(each)}" for each in explanation.job_reasons]
    if explanation.obstacles:
        headings = [("WORKERS", True), ("FOR EXAMPLE", False), ("REASON", False)]
        grid = Grid([*headings, ("WANTED", False), ("FOUND", False)])
        blocks += ["", Table(grid, [_row(each) for each in explanation.obstacles]), ""]
    blocks.append(f"{why[:1].upper()}{why[1:]}.")
    if hint:
        blocks.append(f"hint: {hint}")
    data = {name: plain(getattr(explanation, name)) for name in _FIELDS}
    return Record(str(explanation.job.job_id), {**data, "conclusion": why, "hint": hint}, blocks)


_FIELDS = ("job", "waiting", "job_reasons", "obstacles", "could_run", "ever", "tasks_ahead")


def conclusion(explanation: JobExplanation) -> tuple[str, str | None]:
    """One clause that says why, and what to do about it if anything."""
    job_id = explanation.job.job_id
    if not explanation.waiting:
        return "nothing waits", None
    for reason in explanation.job_reasons:
        if reason.reason is not Reason.NO_WORKERS:
            hint = f"kestrelctl job tasks {job_id} --state failed"
            return _reason_text(reason), hint if reason.reason is Reason.BACKOFF else None
    if not explanation.obstacles and not explanation.could_run:
        return "there are no workers", "kestrelctl worker run --help"
    if explanation.could_run:
        return f"{plural(explanation.could_run, 'worker')} could take a task at once", None
    if not explanation.ever:
        closest = explanation.obstacles[0]
        return (
            f"no worker could ever run it; the closest is {short_address(closest.example)}, "
            f"which {_lack(closest.refusal)}",
            f"add such a worker, or: kestrelctl job cancel {job_id}",
        )
    counts: dict[str, int] = {}
    for each in explanation.obstacles:
        word = _STATES.get(each.refusal.reason, "unfit")
        counts[word] = counts.get(word, 0) + each.workers
    able = ", ".join(f"{n:,} {word}" for word, n in counts.items() if word != "unfit")
    ahead = explanation.tasks_ahead if "busy" in counts else 0
    return (
        f"every worker that could run it is taken or away ({able})"
        + (f"; {plural(ahead, 'task')} of other jobs come first" if ahead else ""),
        None if "busy" in counts else "kestrelctl worker list",
    )


def _lack(refusal: Refusal) -> str:
    if refusal.reason is Reason.MISSING_TAGS:
        return f"lacks {refusal.wanted}"
    if refusal.reason is Reason.TOO_SMALL:
        return f"has {refusal.found} where {refusal.wanted} are wanted"
    return f"is {_STATES.get(refusal.reason, refusal.reason.value)}"


def _reason_text(refusal: Refusal) -> str:
    sentence = _SENTENCES.get(refusal.reason, refusal.reason.value)
    facts = [
        f"{label} {text}"
        for label, text in (("wanted", refusal.wanted), ("found", refusal.found))
        if text
    ]
    return f"{sentence} ({', '.join(facts)})" if facts else sentence


def _row(obstacle: Obstacle) -> list[str]:
    refusal = obstacle.refusal
    return [
        f"{obstacle.workers:,}",
        short_address(obstacle.example),
        refusal.reason.value,
        refusal.wanted,
        refusal.found,
    ]
