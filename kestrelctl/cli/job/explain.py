"""`kestrelctl job explain`: why tasks of a job wait, worker by worker."""

from __future__ import annotations

import click

from kestrelctl.access.connection import Connection, ask
from kestrelctl.cli.command import CliCommand, Invocation, pass_invocation
from kestrelctl.cli.job.arguments import ids_of, jobs_argument
from kestrelctl.cli.show.command_output import CommandOutput, Record, Table, one_or_several, plain
from kestrelctl.core.model.refusal import ClauseCount
from kestrelctl.core.model.wording import plural
from kestrelctl.grammar.flock_words import neighbour_words
from kestrelctl.grammar.id_ranges import LAST
from kestrelctl.grammar.quantities import short_address
from kestrelctl.grammar.why_waiting import conclusion, reason_text
from kestrelctl.protocol.job_answers import JobExplanation, Obstacle
from kestrelctl.protocol.job_requests import ExplainJob


@click.command("explain", cls=CliCommand)
@jobs_argument(unnamed=LAST)
@pass_invocation
def explain(invocation: Invocation, jobs: str) -> None:
    """Explain why tasks of jobs wait, worker by worker, the closest fit first."""

    async def work(connection: Connection) -> CommandOutput:
        requests = [ExplainJob(job=job_id) for job_id in await ids_of(connection, jobs)]
        return one_or_several(
            [report(await ask(connection, each, JobExplanation)) for each in requests]
        )

    invocation.talk(work)


def report(explanation: JobExplanation) -> Record:
    """Shows the explanation as a table, and its conclusion."""
    why, hint = conclusion(explanation)
    job = explanation.job
    name = f" ({job.name})" if job.name else ""
    sentence = f"job {job.job_id}{name}: {plural(explanation.waiting, 'task')} waiting"
    blocks: list[tuple[str, str] | Table | str] = [sentence]
    blocks += [f"  {reason_text(each)}" for each in explanation.job_reasons]
    if explanation.obstacles:
        headings = [("WORKERS", True), ("FOR EXAMPLE", False), ("REASON", False)]
        headings += [("WANTED", False), ("FOUND", False)]
        blocks += ["", Table(headings, [_row(each) for each in explanation.obstacles]), ""]
    for by in ("requirements", "start"):
        clauses = [each for each in explanation.clauses if each.by == by]
        if clauses:
            blocks += [_clauses(clauses), ""]
    if explanation.neighbours:
        headings = [("POOL", False), ("WHY IT DOES NOT RUN THERE", False)]
        rows = [[each.pool, f"it {neighbour_words(each)}"] for each in explanation.neighbours]
        blocks += [Table(headings, rows), ""]
    blocks.append(f"{why[:1].upper()}{why[1:]}.")
    if hint:
        blocks.append(f"hint: {hint}")
    data = {name: plain(getattr(explanation, name)) for name in _FIELDS}
    return Record(str(explanation.job.job_id), {**data, "conclusion": why, "hint": hint}, blocks)


_FIELDS = (
    "job",
    "waiting",
    "job_reasons",
    "obstacles",
    "could_run",
    "ever",
    "tasks_ahead",
    "clauses",
    "neighbours",
    "environments",
    "next_start_seconds",
    "gives_way",
)


def _clauses(clauses: list[ClauseCount]) -> Table:
    """Lists clauses with the workers that they leave, and the values at the closest worker."""
    headings = [("ALONE", True), ("SO FAR", True), ("UNDEFINED", True)]
    headings += [(clauses[0].by.upper(), False), ("AT THE CLOSEST", False)]
    return Table(
        headings,
        [
            [
                f"{each.alone:,} of {each.of:,}",
                f"{each.so_far:,}",
                f"{each.undefined:,}" if each.undefined else "",
                each.clause,
                ": ".join(filter(None, (short_address(each.closest), _outcome(each), each.values))),
            ]
            for each in clauses
        ],
    )


def _outcome(clause: ClauseCount) -> str:
    return "fails" if clause.fails else ""


def _row(obstacle: Obstacle) -> list[str]:
    refusal = obstacle.refusal
    return [
        f"{obstacle.workers:,}",
        short_address(obstacle.example),
        refusal.reason,
        refusal.wanted,
        refusal.found,
    ]
