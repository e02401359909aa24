"""The options that describe a job, and the job that they describe."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import click

from kestrelctl.core.model.job.after import IfParentFails
from kestrelctl.core.model.job.ending_rules import STOP_SIGNALS
from kestrelctl.core.model.job.exits import MAX_EXIT_CODE, Exits
from kestrelctl.core.model.job.placeholders import Placeholders, has_braces
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec, Notify, OnWorkerLost
from kestrelctl.core.model.job.task_array import TaskArray
from kestrelctl.core.model.job.task_environment import TaskEnvironment
from kestrelctl.core.model.objection import objection_to
from kestrelctl.core.model.validate import problem_with_job
from kestrelctl.core.model.worker.isolation import RUNGS, tag
from kestrelctl.errors import UsageError
from kestrelctl.grammar.after_words import parse_after, parse_after_each
from kestrelctl.grammar.asset_words import asked_assets
from kestrelctl.grammar.deadline_words import Deadline, parse_deadline
from kestrelctl.grammar.quantities import (
    Number,
    WholeNumber,
    parse_capacities,
    parse_capacity,
    parse_duration,
    split_words,
)
from kestrelctl.grammar.stage_words import parse_command, stages_of
from kestrelctl.grammar.task_ranges import parse_array
from kestrelctl.protocol.requests import MAX_KEY_CHARACTERS

_RANGE = re.compile(r"(\d{1,3})(?:-(\d{1,3}))?")


def parse_exits(text: object) -> Exits:
    """Ranges of exit codes, and signals, in `0,3`, `64-78` or `75,SIGKILL`; empty for none.

    Raises:
        UsageError: a word is neither.
    """
    if isinstance(text, tuple):  # as it was parsed already
        return text
    return tuple(map(_one, str(text).replace(",", " ").split()))


def _one(word: str) -> tuple[int, int]:
    match = _RANGE.fullmatch(word)
    if match is not None:
        low = int(match[1])
        return low, int(match[2] or low)
    number = getattr(signal.Signals, word.upper(), None)
    if number is None or not word.upper().startswith("SIG"):
        raise UsageError(f"not an exit code: {word[:40]!r}", hint="write 0,3 or 64-78 or SIGKILL")
    return -number, -number


def parse_stop_signal(text: object) -> str:
    """The name of a signal that asks a program to end, without `SIG`; empty for the default.

    Raises:
        UsageError: it is none of these.
    """
    name = str(text).strip().upper().removeprefix("SIG")
    if name and name not in STOP_SIGNALS:
        raise UsageError(
            f"not a stop signal: {str(text)[:40]!r}", hint=f"write one of {', '.join(STOP_SIGNALS)}"
        )
    return name


#: How the names of job files end.
JOB_FILE_SUFFIXES = (".toml", ".ini", ".job")
#: In the `meta` of a command's context: what tells the id of the job that `last` means.
LAST_JOB = "kestrelctl.last_job"

F = TypeVar("F", bound=Callable[..., Any])

array_option = click.option(
    "--array",
    multiple=True,
    metavar="A-B[:S],…",
    callback=lambda _ctx, _param, given: parse_array(",".join(given)) if given else None,
    help="Run one task for each number: 1-1000, 0-9:3 (every third), 1-3,5-7.  "
    "[default: one task, 0]",
)

_OPTIONS = (
    click.option("--name", default="", help="Name of the job, for people."),
    click.option(
        "--priority",
        type=WholeNumber(0, 255),
        default=100,
        show_default=True,
        help="Priority among your jobs and others', 0 to 255; higher runs first.",
    ),
    click.option(
        "--cpus",
        type=Number(min=0),
        default=1.0,
        show_default=True,
        help="Processors for each task; may be a fraction.",
    ),
    click.option(
        "--memory",
        type=parse_capacity,
        metavar="SIZE",
        default="0",
        help="Memory for each task, and its limit: 512M, 1.5GiB; a task that uses more is ended.  "
        "[default: no request, and the machine's memory as the limit]",
    ),
    click.option(
        "--disk",
        type=parse_capacity,
        metavar="SIZE",
        default="0",
        help="Disk for each task, and its limit: 2G; a task whose scratch directory is larger is "
        "ended.  [default: no request]",
    ),
    click.option(
        "--gpus",
        type=Number(min=0),
        default=0.0,
        help="GPUs for each task; 0.5 is half of one.  [default: 0]",
    ),
    click.option(
        "--asset",
        "assets",
        multiple=True,
        metavar="NAME=AMOUNT",
        help="Amount of any other asset for each task: fpga=1; repeatable.",
    ),
    click.option(
        "--retry-memory",
        type=parse_capacities,
        metavar="SIZES",
        default="",
        help="Run a task that ran out of --memory again with more: 2G,4G is first 2 GiB, then 4 "
        "GiB.  [default: let it fail]",
    ),
    click.option(
        "--requires",
        multiple=True,
        metavar="TAG",
        help="Run only on workers with this tag: LINUX,GPU; comma or repeated.",
    ),
    click.option(
        "--isolation",
        type=click.Choice(RUNGS),
        help="Run only on workers that isolate tasks at least this well, systemd being the best.  "
        "[default: any]",
    ),
    click.option(
        "--requirements",
        metavar="EXPR",
        default="",
        help="Run only on workers for which this expression is true: 'Memory >= 4096 && Arch == "
        '"X86_64"\'.',
    ),
    click.option(
        "--rank",
        metavar="EXPR",
        default="",
        help="Prefer workers for which this expression is higher: Memory.",
    ),
    click.option(
        "--environment",
        metavar="NAME",
        default="",
        help="Run inside an environment of this class, on workers that can make it.",
    ),
    click.option(
        "--no-flock",
        is_flag=True,
        help="Run only on this pool's own workers, never on those of other pools.",
    ),
    click.option(
        "--max-running",
        type=WholeNumber(1),
        help="Number of tasks of the job that may run at once.  [default: no limit]",
    ),
    click.option(
        "--max-failures",
        type=WholeNumber(1),
        default=1,
        show_default=True,
        help="Number of attempts that may fail before a task has failed; 1 is no retry.",
    ),
    click.option(
        "--success-exit",
        type=parse_exits,
        default="",
        metavar="CODES",
        help="Exit codes that count as success: 0,3 or 0-2.  [default: 0]",
    ),
    click.option(
        "--retry-on",
        type=parse_exits,
        default="",
        metavar="EXITS",
        help="Retry only after these exit codes or signals: 75,100-110,SIGKILL; needs "
        "--max-failures.  [default: any]",
    ),
    click.option(
        "--no-retry-on",
        type=parse_exits,
        default="",
        metavar="EXITS",
        help="Never retry after these exit codes or signals: 2,64-78; needs --max-failures.",
    ),
    click.option(
        "--backoff",
        type=parse_duration,
        metavar="TIME",
        help="Pause before a failed task is tried again; doubles each time.  [default: 1s]",
    ),
    click.option(
        "--max-backoff",
        type=parse_duration,
        metavar="TIME",
        help="Longest pause before a failed task is tried again.  [default: 1m, or --backoff if "
        "that is longer]",
    ),
    click.option(
        "--max-losses",
        type=WholeNumber(1),
        default=5,
        show_default=True,
        help="Number of workers that a task may lose before it is given up as lost.",
    ),
    click.option(
        "--time-limit",
        type=parse_duration,
        metavar="TIME",
        help="Time that each attempt of a task may take, then it is ended and has failed: 15m.  "
        "[default: no limit]",
    ),
    click.option(
        "--span",
        type=WholeNumber(1),
        metavar="N",
        help="Run N tasks on N workers together, or none: one program, such as one that uses MPI.",
    ),
    click.option(
        "--service",
        is_flag=True,
        help="Keep tasks running: start each again whenever it ends, until the job is cancelled.",
    ),
    click.option(
        "--copies", type=WholeNumber(1), help="Number of tasks of a --service.  [default: 1]"
    ),
    click.option(
        "--time-request",
        type=parse_duration,
        metavar="TIME",
        help="Run only on workers that stay at least this long: 20m.  [default: any]",
    ),
    click.option(
        "--deadline",
        type=parse_deadline,
        metavar="TIME",
        help="Stop what has not ended by then: 2h (from now), 2030-12-24T18:00.  [default: never]",
    ),
    click.option(
        "--after",
        multiple=True,
        metavar="JOB[:ok|ended|failed]",
        callback=lambda ctx, _param, given: parse_after(given, lambda: ctx.meta[LAST_JOB]()),
        help="Start after this job (7), these (3-9) or your `last` one has ended: ok, in any way "
        "(ended), or badly (failed); repeatable.  [default: ok]",
    ),
    click.option(
        "--after-each",
        metavar="JOB",
        callback=lambda ctx, _param, given: parse_after_each(given, lambda: ctx.meta[LAST_JOB]()),
        help="Start each task when the task at the same place in this job is done.",
    ),
    click.option(
        "--if-parent-fails",
        type=click.Choice([each.value for each in IfParentFails]),
        default=IfParentFails.CANCEL.value,
        show_default=True,
        help="Cancel, hold back or run the job if a job of --after ended otherwise; the same for "
        "each task with --after-each.",
    ),
    click.option(
        "--hold", is_flag=True, help="Hold the job: start nothing of it until `job release`."
    ),
    click.option(
        "--hold-after",
        type=WholeNumber(1),
        metavar="N",
        help="Hold the job when N attempts in a row have failed, until `job release`.  [default: "
        "never]",
    ),
    click.option(
        "--stop-after",
        type=WholeNumber(1),
        metavar="N",
        help="Stop the job when N of its tasks have failed.  [default: never]",
    ),
    click.option(
        "--stop-signal",
        type=parse_stop_signal,
        default="",
        metavar="NAME",
        help="Signal that asks a task to end at a limit or a cancel: INT, HUP.  [default: TERM]",
    ),
    click.option(
        "--stop-grace",
        type=parse_duration,
        metavar="TIME",
        help="Time from that signal until the task is killed.  [default: 2s]",
    ),
    click.option(
        "--on-worker-lost",
        type=click.Choice([each.value for each in OnWorkerLost]),
        default=OnWorkerLost.REQUEUE.value,
        show_default=True,
        help="Run the task elsewhere at once (requeue), or wait for its worker to come back.",
    ),
    click.option(
        "--output",
        "outputs",
        multiple=True,
        metavar="GLOB",
        help="Keep files that a task leaves in its scratch directory, for `job fetch`: '*.csv'; "
        "repeatable.",
    ),
    click.option(
        "--output-to",
        metavar="ADDRESS",
        default="",
        help="Address to which workers copy the files of --output instead: file:///shared/results; "
        "each task has its own directory there.",
    ),
    click.option(
        "--setup",
        type=parse_command,
        metavar="COMMAND",
        default="",
        help="Command that runs before each task's own, on the same worker.",
    ),
    click.option(
        "--stage-in",
        type=parse_command,
        metavar="COMMAND",
        default="",
        help="Command that runs next and fetches what the task needs.",
    ),
    click.option(
        "--stage-out",
        type=parse_command,
        metavar="COMMAND",
        default="",
        help="Command that runs after the task's own is done and puts results away; if it fails, "
        "the task does not run again.",
    ),
    click.option(
        "--cleanup",
        type=parse_command,
        metavar="COMMAND",
        default="",
        help="Command that runs after each task, whatever came of it.",
    ),
    click.option(
        "--stage-limit",
        multiple=True,
        metavar="NAME=TIME",
        help="Time limit for one try of a stage (setup, in or out): out=10m; repeatable.  "
        "[default: no limit]",
    ),
    click.option(
        "--stage-tries",
        multiple=True,
        metavar="NAME=N",
        help="Number of tries of a stage (setup, in or out): in=3; repeatable.  [default: 1]",
    ),
    click.option(
        "--checkpoint",
        "checkpoints",
        multiple=True,
        metavar="GLOB",
        help="Store these files of a task's scratch directory as a checkpoint, from which its next "
        "attempt goes on: 'state*'; repeatable.",
    ),
    click.option(
        "--checkpoint-every",
        type=parse_duration,
        metavar="TIME",
        help="Time between two checkpoints of a task that runs.  [default: 10m]",
    ),
    click.option(
        "--checkpoint-exit",
        type=WholeNumber(1, MAX_EXIT_CODE),
        metavar="CODE",
        help="Exit code with which a task says: go on later, from my checkpoint. Often 85.",
    ),
    click.option("--join", is_flag=True, help="Join standard error to standard output, like 2>&1."),
    click.option(
        "--keep-logs",
        is_flag=True,
        help="Keep the whole output of tasks in the pool's file share, so that it outlives their "
        "workers.",
    ),
    click.option(
        "--env",
        multiple=True,
        metavar="K=V",
        help="Environment variable for the tasks: MODE=fast; repeatable.",
    ),
    click.option(
        "--key",
        metavar="KEY",
        callback=lambda _ctx, _param, given: checked_key(given),
        help="Key of this submission: a second one with the same key makes no second job.  "
        "[default: a fresh key]",
    ),
)


def job_options(notify: Notify) -> Callable[[F], F]:
    """Gives a command the options that describe a job, but for those that make its tasks.

    Args:
        notify: who is told of the end if nothing is said of that.
    """
    wish = click.option(
        "--notify",
        type=click.Choice([each.value for each in Notify]),
        default=notify.value,
        show_default=True,
        help="Send you a chat message when the job ends.",
    )

    def decorate(function: F) -> F:
        for option in reversed((*_OPTIONS[:-1], wish, _OPTIONS[-1])):
            function = option(function)
        return function

    return decorate


def job_of(
    argv: tuple[str, ...],
    options: Mapping[str, Any],
    *,
    items: tuple[str, ...] | None = None,
    paste_items: bool = False,
) -> JobSpec:
    """The job that a command and parsed options describe. It is not checked yet: more of it may
    be to come (see `checked_job`).

    Placeholders in its commands are filled if it has an array or items, and stay as they were typed
    otherwise.

    Args:
        items: one for each task; None for the tasks of `--array`, or one.
        paste_items: items may become part of the text for a shell.

    Raises:
        UsageError: they describe none.
    """
    environment = options["environment"]
    if "=" in environment:
        raise UsageError(
            f"--environment names a class of environments, and {environment!r} is none",
            hint=f"--env {environment} sets a variable",
        )
    copies = options["copies"]
    if copies is not None and (not options["service"] or options["array"] or items is not None):
        raise UsageError(
            "--copies says how many tasks a service has, and nothing else does",
            hint="write --service --copies 3, or --array",
        )
    span = options["span"] or 1
    if span > 1 and (options["array"] or items is not None):
        raise UsageError(
            f"a job that spans {span} workers has a task for each of them, and no array",
            hint="submit a job for each line or number",
        )
    one = copies or span if items is None else len(items)
    array = options["array"] or TaskArray(count=one)
    named = {name: options[name] for name in ("memory", "disk", "gpus") if options[name]}
    asked = asked_assets(options["assets"])
    for name in asked.keys() & {"cpus", "memory", "disk", "gpus"}:
        raise UsageError(f"{name} has an option of its own", hint=f"--{name} instead of --asset")
    isolation = (tag(options["isolation"]),) if options["isolation"] else ()
    stages = stages_of(options)
    cleanup = options["cleanup"]
    commands = (argv, cleanup, *(stage.argv for stage in stages))
    differ = options["array"] is not None or items is not None
    program = Program(
        argv=argv,
        placeholders=_placeholders(commands, differ=differ, paste_items=paste_items),
        env=_environment(options["env"]),
        cleanup=cleanup,
        time_limit_seconds=options["time_limit"],
        outputs=tuple(options["outputs"]),
        output_to=options["output_to"],
        stages=stages,
        checkpoints=tuple(options["checkpoints"]),
        checkpoint_seconds=options["checkpoint_every"],
        checkpoint_exit=options["checkpoint_exit"],
        success_exits=options["success_exit"],
        stop_signal=options["stop_signal"],
        stop_grace_seconds=options["stop_grace"],
        join=options["join"],
        keep_logs=options["keep_logs"],
        environment=TaskEnvironment(environment) if environment else None,
    )
    return JobSpec(
        program=program,
        items=items,
        count=array.count,
        first=array.first,
        step=array.step,
        further=array.further,
        span=span,
        name=options["name"],
        priority=options["priority"],
        request={"cpus": options["cpus"]} | named | asked,
        requires=split_words(options["requires"]) + isolation,
        requirements=options["requirements"].strip(),
        rank=options["rank"].strip(),
        stays=options["no_flock"],
        max_running=options["max_running"],
        max_failures=options["max_failures"],
        retry_memory_bytes=options["retry_memory"],
        service=options["service"],
        time_request_seconds=options["time_request"],
        **_deadline(options["deadline"]),
        retry_on=options["retry_on"],
        no_retry_on=options["no_retry_on"],
        backoff_seconds=options["backoff"],
        max_backoff_seconds=options["max_backoff"],
        held=options["hold"],
        hold_after=options["hold_after"],
        stop_after=options["stop_after"],
        after=options["after"],
        after_each=options["after_each"],
        if_parent_fails=IfParentFails(options["if_parent_fails"]),
        max_losses=options["max_losses"],
        on_worker_lost=OnWorkerLost(options["on_worker_lost"]),
        notify=Notify(options["notify"]),
    )


def _placeholders(
    commands: Iterable[tuple[str, ...]], *, differ: bool, paste_items: bool
) -> Placeholders:
    """How the placeholders of a job are read; as usual if its commands have none.

    Args:
        differ: it has an array or items, by which its tasks differ.
    """
    if not any(has_braces(words) for words in commands):
        return Placeholders.ALWAYS
    if not differ:
        return Placeholders.NONE
    return Placeholders.PASTE if paste_items else Placeholders.ARRAY


def _deadline(given: Deadline | None) -> dict[str, Any]:
    return {} if given is None else {"deadline_at": given.at, "deadline_seconds": given.seconds}


def checked_job(spec: JobSpec) -> JobSpec:
    """A job that the pool would take.

    Raises:
        UsageError: it would not.
    """
    problem = problem_with_job(spec)
    if problem is not None:
        raise UsageError("the pool would not take this job", cause=problem)
    objection = objection_to(spec)
    if objection is not None:
        raise UsageError(
            "the pool would not take this job", cause=objection.cause, hint=objection.hint
        )
    return spec


def checked_key(key: str | None) -> str | None:
    """A key for a submission.

    Raises:
        UsageError: it is empty or too long.
    """
    if key is not None and not 0 < len(key) <= MAX_KEY_CHARACTERS:
        raise UsageError(f"a key has 1 to {MAX_KEY_CHARACTERS} characters, not {len(key)}")
    return key


def _environment(given: Iterable[str]) -> dict[str, str]:
    variables = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise UsageError(
                f"not a variable: {each!r}", hint=f"write --env {name or 'NAME'}=VALUE"
            )
        variables[name] = value
    return variables
