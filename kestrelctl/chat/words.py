"""Turns a message into answers and requests: all words that the pool understands in a chat."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import click

from kestrelctl.chat import sentences, submit_words, typed_words
from kestrelctl.chat.step import NotDone, Step, no_such_job, refusal
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.errors import KestrelError, NotFound, UsageError
from kestrelctl.grammar.id_ranges import LAST, parse_job, parse_jobs
from kestrelctl.grammar.nearest import did_you_mean
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.answers import FlockStatus
from kestrelctl.protocol.chat.body import ChatKind

#: How many workers are asked for; an answer only says whether there are more.
_MOST_WORKERS = 200
#: How much of the end of a long output is asked for.
_END_BYTES = 4_000

_BAD = [TaskState.FAILED, TaskState.LOST]
_BOTH = ("stdout", "stderr")
_STREAMS = {"stdout": "stdout", "--stdout": "stdout", "stderr": "stderr", "--stderr": "stderr"}
#: What may stand before a word: people who are used to a shell, or to bots, type it.
_BEFORE = re.compile(r"(?:\$ +)?(?:(?:\./)?kestrel(?:ctl)? +)?/?", re.IGNORECASE)
#: Nouns and verbs of the command line, and words of the first Kestrel.
_ALIASES = {
    ("job", "list"): "jobs",
    ("job", "info"): "job",
    ("job", "tasks"): "job",
    ("job", "cancel"): "cancel",
    ("job", "explain"): "explain",
    ("job", "logs"): "logs",
    ("worker", "list"): "workers",
    ("pool", "status"): "status",
}
#: Verbs that need the command line, and their nouns there.
_ELSEWHERE = {
    "retry": "job",
    "hold": "job",
    "release": "job",
    "fetch": "job",
    "graph": "job",
    "history": "job",
    "scale": "job",
    "forget": "job",
    "story": "job",
    "wait": "job",
    "drain": "worker",
    "resume": "worker",
    "resize": "worker",
    "top": "",
}
_OTHER_NAMES = {
    "": "help",
    "?": "help",
    "--help": "help",
    "-h": "help",
    "kestrel": "help",
    "kestrelctl": "help",
    "pool": "status",
    "worker": "workers",
    "tasks": "job",
}


@dataclass(frozen=True)
class _Word:
    """A word that begins a message.

    Attributes:
        usage: how it is written.
        what: what it does; empty if that need not be said.
        read: turns the words after it and the user's account into an answer or a request.
    """

    usage: str
    what: str
    read: Callable[[Sequence[str], str], str | Step]


def read_message(body: str, user: str, job_id: int | None = None) -> list[str | Step]:
    """Turns each command of a message into an answer or a request, in order.

    One that cannot be understood may change what another means, such as when a command was broken
    in two. So nothing in such a message is done.

    Args:
        user: the account that wrote it.
        job_id: the job to whose own address it was sent; None for the address of all jobs.
    """
    try:
        commands = typed_words.commands(body)
    except UsageError as error:
        return [NotDone(sentences.problem(error))]
    if not commands and body.strip():
        return [NotDone(sentences.unread(ChatKind.SUBSTITUTE))]
    found: list[str | Step] = []
    for command in commands or [""]:
        read_one = read(command, user) if job_id is None else read_to_job(job_id, command, user)
        found.append(read_one)
        if isinstance(read_one, NotDone) and len(commands) > 1:
            return [NotDone(f"{read_one}\n{sentences.nothing_done(len(found), len(commands))}")]
    return found


def read(body: str, user: str) -> str | Step:
    """Turns a command into an answer or a request; never raises for what a person may write.

    Args:
        user: the account that wrote it.
    """
    return _told(lambda: _read(body.strip(), user))


def _told(read: Callable[[], str | Step]) -> str | Step:
    """Calls `read`, and says in words what is wrong if it fails."""
    try:
        return read()
    except KestrelError as error:
        return NotDone(sentences.problem(error))
    except click.ClickException as error:
        message = error.format_message().rstrip(".")
        return NotDone(sentences.problem(UsageError(message, hint="write: help submit")))


#: Words about the job that a job's own address understands, and the words for them elsewhere.
_OF_A_JOB = {
    "": "job",
    "status": "job",
    "job": "job",
    "info": "job",
    "explain": "explain",
    "logs": "logs",
    "cancel": "cancel",
}
#: Words about the pool that answers there hint at.
_OF_THE_POOL = ("jobs", "workers")


def read_to_job(job_id: int, body: str, user: str) -> str | Step:
    """Reads a command at a job's own address: the job need not be named, and no other can be.

    Args:
        user: the account that wrote it.
    """
    first, *rest = body.split(maxsplit=2) or [""]
    name = first.lower().lstrip("/").rstrip("!?.:,")
    if not rest and name in _OF_THE_POOL:
        return read(name, user)
    rest = typed_words.without_end_mark(rest)
    logs = name == "logs"
    # `logs 12` is about a task with that number; hints name job and task.
    if rest and rest[0].strip("#") == str(job_id) and (rest[1:] or not logs):
        rest = rest[1:]
    if name == "cancel" and not rest and "?" in body:
        return NotDone(sentences.problem(_asked_about_cancelling(name)))
    if name in _OF_A_JOB and (logs or not rest):
        return read(" ".join([_OF_A_JOB[name], str(job_id), *rest]), user)
    usage = "status, explain, logs TASK, or cancel (all of it)"
    return NotDone(f"This is the address of job {job_id}. Write: {usage}")


def _read(text: str, user: str) -> str | Step:
    before = _BEFORE.match(text)
    text = text[before.end() :] if before else text
    if text:
        _name(text.split(maxsplit=1)[0])  # who only says hello need not hear of quotes
    words = typed_words.split(text)
    if not words:
        return _help([], user)
    first = words[0].lower()
    second = words[1].lower() if len(words) > 1 else ""
    if (first, second) in _ALIASES:
        return _come_to(_ALIASES[first, second], words[2:], user)
    if first in ("job", "worker") and second in _ELSEWHERE:
        _name(second)  # says so
    name = _name(words[0])
    rest = words[1:]
    before_command = rest[: rest.index("--")] if "--" in rest else rest[:1]
    if "--help" in before_command or "-h" in before_command:
        return _help([name], user)
    if name == "submit":
        typed_words.check_no_shell(text)
    return _come_to(name, rest, user)


def _come_to(name: str, rest: Sequence[str], user: str) -> str | Step:
    """Reads a word and those behind it; people end sentences, and ask questions."""
    if name != "submit":
        said, rest = rest, typed_words.without_end_mark(rest)
        if name == "cancel" and said and "?" in said[-1]:
            raise _asked_about_cancelling(" ".join(["cancel", *rest]))
    return _WORDS[name].read(rest, user)


def _asked_about_cancelling(command: str) -> UsageError:
    return UsageError("a question cancels nothing", hint=f"to stop it, write: {command}")


def _name(word: str) -> str:
    """The word that is meant.

    Raises:
        UsageError: there is no such word, or it does not work in a chat.
    """
    name = word.lower().lstrip("/")
    if name in _ELSEWHERE:
        command = f"{_ELSEWHERE[name]} {name}".strip()
        raise UsageError(f"`{name}` does not work in a chat", hint=f"kestrelctl {command}")
    if name not in _WORDS and name not in _OTHER_NAMES:
        name = name.rstrip("!?.:,")
    name = _OTHER_NAMES.get(name, name)
    if name not in _WORDS:
        meant = did_you_mean(name, _WORDS)
        raise UsageError(
            f'I do not know "{word[:40]}"' + (f"; {meant}" if meant else ""), hint="write: help"
        )
    return name


def _help(words: Sequence[str], _user: str) -> str:
    name = _name(words[0]) if words else "help"
    if name == "submit":
        lines = [
            "submit [options] -- command",
            "submit --array 1-100 -- ./run {}",
            "{} is the number of the task. There is no shell; for pipes: -- sh -c 'a | b'",
            "",
            *(f"{option}: {what}" for option, what in submit_words.options()),
        ]
        return "\n".join(lines)
    if name != "help":
        return f"{_WORDS[name].usage}\n{_WORDS[name].what}"
    return "\n".join(
        [
            "I run jobs. Write one of:",
            *(f"{word.usage}: {word.what}" for word in _WORDS.values() if word.what),
            "More on a word: help submit",
        ]
    )


def _submit(words: Sequence[str], _user: str) -> str | Step:
    try:
        return _submission(words, submit_words.read(words))
    except submit_words.LastIsMeant:
        return Step(rq.ListJobs(jobs=LAST), lambda reply: _submit_after(words, reply), changes=True)


def _submit_after(words: Sequence[str], reply: an.Reply) -> str | Step:
    """Submits a job, once it is known which job is the last."""
    job_id = cast(an.Jobs, reply).jobs[-1].job_id
    return _told(lambda: _submission(words, submit_words.read(words, job_id)))


def _submission(words: Sequence[str], request: rq.SubmitJob) -> Step:
    spec = request.spec
    beside = submit_words.remarks(words, spec)

    def then(reply: an.Reply) -> str | Step:
        answer = cast(an.Submitted, reply)
        return sentences.submitted(answer, spec.program.argv, spec.notify) + beside

    return Step(request, then, changes=True)


def _status(words: Sequence[str], user: str) -> str | Step:
    if words:
        return _job(words, user)
    return Step(rq.PoolStatus(), lambda reply: sentences.pool_line(cast(an.PoolSummary, reply)))


def _flock(words: Sequence[str], _user: str) -> str | Step:
    if words and words[0] != "status":
        raise UsageError("that is for the command line", hint="write: flock")
    return Step(rq.AskFlock(), lambda reply: sentences.flock_line(cast(FlockStatus, reply).flock))


def _jobs(words: Sequence[str], user: str) -> str | Step:
    if words:
        return _job(words, user)

    limit = sentences.MOST_LINES

    def then(reply: an.Reply) -> Step:
        active = cast(an.Jobs, reply).jobs
        return Step(rq.ListJobs(owner=user, limit=limit), lambda reply: show(active, reply))

    def show(active: list[an.JobView], reply: an.Reply) -> str:
        latest = cast(an.Jobs, reply)
        return sentences.job_list(active, latest.jobs, latest.total or 0)

    return Step(rq.ListJobs(owner=user, states=["active"], limit=limit), then)


def _job(words: Sequence[str], _user: str) -> str | Step:
    job = _one_job(words, 1, "job 12")

    def then(reply: an.Reply) -> str | Step:
        view = _own(reply)
        if view is None:
            return no_such_job(job)
        said = sentences.job_details(view)
        bad = view.failed + view.lost
        if not bad:
            return said
        return Step(
            rq.ListTasks(job=str(view.job_id), states=_BAD, limit=sentences.MOST_TASKS),
            lambda reply: _with_bad_tasks(said, view.job_id, cast(an.Tasks, reply).tasks, bad),
            otherwise=lambda _: said,
        )

    return Step(rq.ListJobs(jobs=job), then, job)


def _own(reply: an.Reply) -> an.JobView | None:
    """The one job that was asked for; None if it is somebody else's, or is not stored yet."""
    found = cast(an.Jobs, reply).jobs
    return found[0] if found and found[0].spec.program.argv else None


def _with_bad_tasks(said: str, job_id: int, tasks: list[an.TaskView], bad: int) -> str:
    found = [task for task in tasks if task.state in _BAD]
    return f"{said}\n{sentences.bad_tasks(job_id, found, bad)}" if found else said


def _cancel(words: Sequence[str], _user: str) -> str | Step:
    if not words:
        raise UsageError("which job?", hint="write: cancel 12, or cancel last, or cancel all")
    _check_no_task(words)
    jobs = parse_jobs(",".join(word.strip("#,").lower() for word in words))

    def otherwise(failed: an.Failed) -> str | Step:
        if failed.code != NotFound.code or not (jobs.isdecimal() or jobs == "last"):
            return refusal(failed, jobs)
        return Step(rq.ListJobs(jobs=jobs), over, jobs)

    def over(reply: an.Reply) -> str:
        view = _own(reply)
        return f"It is over: job {sentences.job_line(view)}" if view else no_such_job(jobs)

    return Step(
        rq.CancelJobs(jobs=jobs),
        lambda reply: sentences.cancelled(cast(an.Changed, reply)),
        jobs,
        otherwise,
        changes=True,
    )


def _check_no_task(words: Sequence[str]) -> None:
    """Refuses numbers without a comma between: `logs 12 3` is about a task, and `cancel 12 3` would
    end two jobs.

    Raises:
        UsageError: there are such.
    """
    for part in " ".join(words).split(","):
        first, *others = part.replace("#", "").split() or [""]
        if others and first[:1].isdecimal() and others[0][:1].isdecimal():
            raise UsageError(
                f"is {others[0]} a job, or a task of job {first}?",
                hint=f"write: cancel {first},{others[0]} for both jobs; "
                "single tasks are cancelled on the command line",
            )


def _explain(words: Sequence[str], _user: str) -> str | Step:
    job = _one_job(words, 1, "explain 12")
    return Step(
        rq.ExplainJob(job=job),
        lambda reply: sentences.explained(cast(an.JobExplanation, reply)),
        job,
    )


def _logs(words: Sequence[str], _user: str) -> str | Step:
    streams = [_STREAMS[word] for word in words if word in _STREAMS]
    numbers = [word for word in words if word not in _STREAMS]
    job = _one_job(numbers, 2, "logs 12 3")
    if len(numbers) > 1:
        if not (numbers[1].isascii() and numbers[1].isdigit() and len(numbers[1]) < 20):
            raise UsageError(f"not a task: {numbers[1]!r}", hint="write for example: logs 12 3")
        return _log(job, int(numbers[1]), streams or _BOTH)

    def then(reply: an.Reply) -> str | Step:
        view = _own(reply)
        if view is None:
            return no_such_job(job)
        if view.tasks == 1:
            return _log(str(view.job_id), view.spec.first, streams or _BOTH)
        raise UsageError(
            f"job {view.job_id} has {view.tasks:,} tasks; whose output?",
            hint=f"write: logs {view.job_id} {view.spec.first}",
        )

    return Step(rq.ListJobs(jobs=job), then, job)


def _log(job: str, task_id: int, streams: Sequence[str], empty: Sequence[str] = ()) -> Step:
    """Asks for what a task wrote to the first of these streams that is not empty.

    Args:
        empty: the streams to which it wrote nothing.
    """
    stream, *others = streams

    def show(reply: an.Reply) -> str | Step:
        text = sentences.log_text(cast(an.Log, reply))
        if text:
            return text if stream == "stdout" else f"{stream}:\n{text}"
        if others:
            return _log(job, task_id, others, [*empty, stream])
        which = f"Task {task_id} of {'your last job' if job == 'last' else f'job {job}'}"
        where = "" if empty else f" to {stream}"
        return Step(
            rq.ListTasks(job=job, ids=[task_id]),
            lambda reply: nothing(which, where, cast(an.Tasks, reply).tasks),
            job,
            otherwise=lambda _: nothing(which, where, []),
        )

    def nothing(which: str, where: str, tasks: list[an.TaskView]) -> str:
        if any(task.state is TaskState.RUNNING for task in tasks):
            return f"{which} runs and wrote nothing{where} yet."
        return f"{which} wrote nothing{where}."

    def then(reply: an.Reply) -> str | Step:
        log = cast(an.Log, reply)
        if log.next_offset is None:
            return show(log)
        end = max(0, log.size_bytes - _END_BYTES)
        request = rq.Logs(job=job, task_id=task_id, stream=stream, offset=end)
        return Step(request, show, job)

    return Step(rq.Logs(job=job, task_id=task_id, stream=stream), then, job)


def _workers(words: Sequence[str], _user: str) -> str | Step:
    def then(reply: an.Reply) -> str:
        found = cast(an.Workers, reply)
        return sentences.worker_list(found.workers, all_of_them=found.after is None)

    return Step(rq.ListWorkers(names=list(words), limit=_MOST_WORKERS), then)


def _one_job(words: Sequence[str], most: int, example: str) -> str:
    """The job that the first word names; without words the last one."""
    if len(words) > most:
        raise UsageError(f"{len(words)} words are too many here", hint=f"write: {example}")
    return parse_job(words[0].strip("#").lower()) if words else "last"


_WORDS = {
    "submit": _Word("submit -- command", "run it as a job", _submit),
    "jobs": _Word("jobs", "your jobs", _jobs),
    "job": _Word("job 12", "how far one is", _job),
    "logs": _Word("logs 12 3", "what its task 3 wrote", _logs),
    "explain": _Word("explain 12", "why it waits", _explain),
    "cancel": _Word("cancel 12", "stop it", _cancel),
    "workers": _Word("workers", "who runs tasks", _workers),
    "status": _Word("status", "how the pool is", _status),
    "flock": _Word("flock", "how it shares machines with other pools", _flock),
    "help": _Word("help", "", _help),
}
