"""Answers as a few short lines, which a phone shows without turning it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence

from kestrelctl.core.model.end_reason import how_stopped
from kestrelctl.core.model.job.program import cut_words
from kestrelctl.core.model.job.spec import Notify
from kestrelctl.core.model.records import JobRecord
from kestrelctl.core.model.result import how_it_ended
from kestrelctl.core.model.wording import one_line, plural
from kestrelctl.errors import KestrelError, UsageError
from kestrelctl.grammar.flock_words import neighbour_words
from kestrelctl.grammar.quantities import duration, size, told_apart
from kestrelctl.grammar.why_waiting import conclusion
from kestrelctl.protocol.answers import PoolSummary, WorkerView
from kestrelctl.protocol.chat.body import ChatKind
from kestrelctl.protocol.job_answers import JobExplanation, JobView, Log, Submitted, TaskView
from kestrelctl.protocol.request import Changed
from kestrelctl.protocol.views import FlockView

#: The most lines of jobs or workers in one answer.
MOST_LINES = 8
#: The most other pools in an explanation.
MOST_NEIGHBOURS = 5
#: The most failed tasks in an answer.
MOST_TASKS = 4
#: The most lines of an output.
MOST_LOG_LINES = 20
MOST_LOG_CHARACTERS = 1_500
#: The most characters of a command, and of anything that a user wrote and an answer repeats.
_MOST_COMMAND_CHARACTERS = 60
_MOST_CHARACTERS = 2_000

#: States of workers; those that somebody should look at come first.
_STATES = ("offline", "unheard", "quarantined", "draining", "busy", "idle")
#: Commands in hints for the command line, and what to write here.
_HERE = (
    (re.compile(r"kestrelctl job (?:tasks|info) (\w+)(?: --state \w+)?"), r"job \1"),
    (re.compile(r"kestrelctl job (logs|cancel|explain) "), r"\1 "),
    (re.compile(r"kestrelctl job list"), "jobs"),
    (re.compile(r"kestrelctl worker list"), "workers"),
    (re.compile(r"kestrelctl pool status"), "status"),
)
#: The kinds of messages that are not read, and why.
_UNREAD = {
    ChatKind.ENCRYPTED: UsageError(
        "I cannot read encrypted messages",
        hint="turn encryption (OMEMO, OpenPGP, OTR) off for this chat, and write it again",
    ),
    ChatKind.RETRACTION: UsageError(
        "what a message has started goes on when the message is taken back",
        hint="to stop a job, write for example: cancel 12",
    ),
    ChatKind.SUBSTITUTE: UsageError(
        "there are no words of yours in this message, but a quotation or the like",
        hint="write: help",
    ),
}
#: The answer to a message that is to replace one that may have changed something.
CORRECTS = UsageError(
    "this corrects a message that may have been acted upon, so nothing was done",
    hint="send it as a new message if it is to be done as well",
)
#: Colours and the like, which a chat shows as rubbish (ECMA-48, 5.4).
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])")


def problem(error: KestrelError) -> str:
    """Says what is wrong, why, and what to do about it."""
    cause = (error.cause or "").partition("\n")[0]  # no caret in letters of many widths
    said = f"{error.message}: {cause}" if cause else error.message
    text = sentence(one_line(said))
    if error.hint:
        text += f"\n{_hint(one_line(error.hint))}"
    return cut(text)


def unread(kind: ChatKind) -> str:
    """Explains why a message is not taken for words.

    Args:
        kind: any other than words.
    """
    return problem(_UNREAD[kind])


def _hint(hint: str) -> str:
    """A hint as it is followed here: commands of the command line become words of the chat."""
    here = hint
    for pattern, word in _HERE:
        here = pattern.sub(word, here)
    if hint.startswith("kestrelctl "):
        return f"Write: {here}" if here != hint else f"On the command line: {hint}"
    return f"{here[:1].upper()}{here[1:]}"


def sentence(text: str) -> str:
    """The text with a capital letter and an end."""
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "?", "!", ":", "…")) else f"{text}."


def cut(text: str) -> str:
    """The beginning of a text that may repeat what somebody wrote."""
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


def nothing_done(number: int, of: int) -> str:
    """Says that a message was left alone because one of its commands cannot be understood."""
    return f"That is command {number} of {of} in this message; none of them was done."


def not_the_rest(commands: int) -> str:
    """Says that so many commands of a message are left alone because the one before was refused."""
    others = "other command" if commands == 1 else f"{commands} other commands"
    return f"So the {others} of this message {'was' if commands == 1 else 'were'} not done."


def submitted(answer: Submitted, argv: Sequence[str], notify: Notify) -> str:
    """Says that the job is safe; and why it waits, if nothing could ever run it."""
    job_id = answer.job_id
    if answer.repeated:
        first = f"Job {job_id} is there already, from an earlier submission with this key."
    else:
        first = f"Job {job_id}: {plural(answer.tasks, 'task')} of {command(argv)}"
    told = {
        Notify.ALWAYS: "I tell you when it ends",
        Notify.FAILURES: "I tell you if it fails",
        Notify.NEVER: "I do not tell you when it ends",
    }[notify]
    waits = ""
    if answer.hopeless is not None:
        waits = f"\nBut it waits: {conclusion(answer.hopeless)[0]}."
    return f"{first}\n{told}. How far it is: job {job_id}{waits}"


def command(argv: Sequence[str]) -> str:
    """A command on one line, cut where it becomes long."""
    text = one_line(" ".join(shlex.join(cut_words(argv, _MOST_COMMAND_CHARACTERS)).split()))
    short = text[:_MOST_COMMAND_CHARACTERS]
    return short if short == text else f"{short}…"


def job_line(view: JobView) -> str:
    """A job on one line: `12 "fit": 40 of 100 done, 10 running, 50 waiting`."""
    name = _named(view.name)
    parts = [
        f"{n:,} {word}"
        for n, word in (
            (view.running, "running"),
            (view.waiting, "waiting"),
            (view.failed, "failed"),
            (view.lost, "lost"),
            (view.cancelled, "cancelled"),
        )
        if n
    ]
    if view.ended_at is None:
        state = " is being cancelled" if view.state == "cancelling" else ""
        done = f"{view.done:,} of {view.tasks:,} done"
        return f"{view.job_id}{name}{state}: {', '.join([done, *parts])}"
    took = duration(view.ended_at - view.submitted_at)
    done = f"{view.done:,} done"
    text = f"{view.job_id}{name} {view.state}: {', '.join([done, *parts])} in {took}"
    if view.stopped_by:
        text += f"; {how_stopped(view.stopped_by, view.failed + view.lost)}"
    return text


def job_list(active: Sequence[JobView], latest: Sequence[JobView], total: int) -> str:
    """A user's jobs: those under way first, each group newest first.

    Args:
        active, latest: the newest that are under way, and the newest of all.
        total: how many he has.
    """
    views = {view.job_id: view for view in (*active, *latest)}.values()
    if not views:
        return "You have no jobs. To start one: submit -- echo hello"
    newest = sorted(views, key=lambda view: (view.ended_at is not None, -view.job_id))
    lines = [job_line(view) for view in newest]
    return _listed(lines, unseen=max(0, total - len(lines)))


def job_details(view: JobView) -> str:
    """A job, its command, and where to look next."""
    lines = [f"Job {job_line(view)}", command(view.spec.program.argv)]
    if view.ended_at is None and view.waiting and not view.running:
        lines.append(f"Why it waits: explain {view.job_id}")
    return "\n".join(lines)


def bad_tasks(job_id: int, tasks: Sequence[TaskView], in_all: int) -> str:
    """Tells which tasks ended badly, and how."""
    shown = tasks[:MOST_TASKS]
    lines = [
        f"Task {task.task_id} {task.state.value}: "
        f"{one_line(how_it_ended(task.reason, task.signal, task.exit_code or 0))[:100]}"
        if task.reason or task.signal or task.exit_code
        else f"Task {task.task_id} {task.state.value}"
        for task in shown
    ]
    if in_all > len(shown):
        lines.append(f"and {in_all - len(shown):,} more")
    lines.append(f"What it wrote: logs {job_id} {shown[0].task_id}")
    return "\n".join(lines)


def explained(explanation: JobExplanation) -> str:
    """Explains why a job waits."""
    job = explanation.job
    if not explanation.waiting:
        running = f", {job.running:,} {'is' if job.running == 1 else 'are'} running"
        return f"Job {job.job_id}: no task waits{running if job.running else ''}."
    why, hint = conclusion(explanation)
    waiting = f"Job {job.job_id}: {plural(explanation.waiting, 'task')} waiting."
    lines = [waiting, problem(KestrelError(why, hint=hint))]
    shown = explanation.neighbours[:MOST_NEIGHBOURS]
    lines += [f"Pool {each.pool} {neighbour_words(each)}" for each in shown]
    if len(explanation.neighbours) > len(shown):
        lines.append(f"and {plural(len(explanation.neighbours) - len(shown), 'other pool')}")
    return "\n".join(lines)


def flock_line(found: FlockView) -> str:
    """Tells how a pool shares machines with others, in a few lines."""
    if not found.member:
        return f"The pool {found.pool} is in no flock: it knows no other pool."
    to, by = ({loan.pool for loan in loans} for loans in (found.given, found.taken))
    here, there = (sum(loan.running for loan in loans) for loans in (found.given, found.taken))
    lends = f"lends to {plural(len(to), 'pool')}: {plural(here, 'task')} of theirs run here"
    borrows = f"borrows from {plural(len(by), 'pool')}: {plural(there, 'task')} of ours run there"
    lines = [f"The pool {found.pool} knows {plural(found.known, 'other pool')}.", f"It {lends}."]
    if not found.willing and not found.given:
        lines[-1] = sentence(f"It lends nothing: {found.why_unwilling}")
    return "\n".join([*lines, f"It {borrows}."])


def cancelled(answer: Changed) -> str:
    """Says what was stopped."""
    jobs = answer.what
    if not jobs:
        return "There was nothing to cancel."
    named = f"job {jobs[0]}" if len(jobs) == 1 else f"{len(jobs):,} jobs"
    text = f"Cancelled {named}: {plural(answer.tasks, 'task')} stopped."
    return f"{text}\n{answer.left:,} more are left: write the same again" if answer.left else text


def log_text(log: Log) -> str:
    """The end of an output, as far as a chat can show it; empty if nothing was written."""
    text = log.data.decode(errors="replace")
    text = _ESCAPE.sub("", text).replace("\r\n", "\n").replace("\r", "\n").strip("\n")
    lines = text.split("\n")[-MOST_LOG_LINES:]
    end = "\n".join(lines)[-MOST_LOG_CHARACTERS:]
    if len(end) < len(text) or log.skipped_bytes or log.cut_bytes:
        return f"The end of {size(log.size_bytes + log.cut_bytes)}:\n…{end}"
    return end


def worker_list(views: Sequence[WorkerView], *, all_of_them: bool) -> str:
    """Workers: how many are in each state, and some of them."""
    if not views:
        return "There are no workers."
    counts: dict[str, int] = {}
    for view in views:
        counts[view.state] = counts.get(view.state, 0) + 1
    more = "" if all_of_them else "at least "
    lines = [f"{more}{plural(len(views), 'worker')}: {_counted(counts)}"]
    ordered = sorted(views, key=lambda view: (_rank(view.state), -view.running, view.worker))
    names = told_apart(view.worker for view in views)
    found = [
        f"{names[view.worker]} {view.state}"
        + (f", {view.running:,} running" if view.running else "")
        for view in ordered
    ]
    return "\n".join([*lines, _listed(found, more)])


def pool_line(summary: PoolSummary) -> str:
    """Tells the state of the pool."""
    workers = sum(summary.workers.values())
    running = plural(summary.tasks_running, "task running", "tasks running")
    lines = [
        f"{plural(workers, 'worker')}: {_counted(summary.workers)}" if workers else "No workers.",
        f"{plural(summary.jobs_active, 'job')} under way: {running}, "
        f"{summary.tasks_waiting:,} waiting",
    ]
    if summary.store_error:
        lines.append(f"The store FAILS: {summary.store_error}; nothing is handed out")
    return "\n".join(lines)


def notice(record: JobRecord, bad_task: int | None) -> str:
    """Tells the owner of a job that it has ended.

    Args:
        bad_task: the id of a task that failed or was lost; None if there is none.
    """
    counts, named = record.counts, _named(record.spec.name)
    parts = [f"{counts.done:,} done", f"{counts.failed:,} failed"]
    parts += [
        f"{n:,} {word}" for n, word in ((counts.lost, "lost"), (counts.cancelled, "cancelled")) if n
    ]
    took = duration((record.ended_at or record.submitted_at) - record.submitted_at)
    text = f"job {record.job_id}{named} {record.state}: {', '.join(parts)} in {took}"
    if record.stopped_by:
        text += f"; {how_stopped(record.stopped_by, counts.failed + counts.lost)}"
    if bad_task is None:
        return text
    return f"{text}\nWhich: job {record.job_id}\nWhat one wrote: logs {record.job_id} {bad_task}"


def _named(name: str) -> str:
    """A job's name behind its number; empty if it has none."""
    return f' "{one_line(name)[:40]}"' if name else ""


def _listed(lines: Sequence[str], at_least: str = "", *, unseen: int = 0) -> str:
    shown = lines[:MOST_LINES]
    more = len(lines) - len(shown) + unseen
    if not more:
        return "\n".join([*shown, "and more"] if at_least else shown)
    return "\n".join([*shown, f"and {at_least}{more:,} more"])


def _counted(counts: dict[str, int]) -> str:
    known: Iterable[str] = sorted(counts, key=_rank)
    return ", ".join(f"{counts[state]:,} {state}" for state in known if counts[state])


def _rank(state: str) -> int:
    return _STATES.index(state) if state in _STATES else len(_STATES)
