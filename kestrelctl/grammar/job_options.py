"""The options of `submit`: one table, by the sections of its help."""

from __future__ import annotations

import re
import shlex
import signal
from datetime import datetime

from kestrelctl.core.model.job.after import IfParentFails
from kestrelctl.core.model.job.checkpoint import DEFAULT_SECONDS
from kestrelctl.core.model.job.exits import MAX_EXIT_CODE, Exits, exits_text
from kestrelctl.core.model.job.spec import JobSpec, Notify, OnWorkerLost
from kestrelctl.core.model.job.stage import IN, OUT, SETUP, Stage
from kestrelctl.core.model.wording import plural
from kestrelctl.core.model.worker.isolation import RUNGS
from kestrelctl.errors import UsageError
from kestrelctl.grammar.after_words import parse_after, parse_after_each
from kestrelctl.grammar.deadline_words import parse_begin, parse_deadline
from kestrelctl.grammar.id_ranges import parse_array
from kestrelctl.grammar.option import (
    Choice,
    Command,
    Decimal,
    File,
    Flag,
    JobNames,
    Option,
    Pairs,
    Parsed,
    Ranges,
    Row,
    Section,
    Text,
    Whole,
    Words,
)
from kestrelctl.grammar.quantities import (
    duration,
    parse_capacities,
    parse_capacity,
    parse_duration,
    size,
)
from kestrelctl.grammar.stage_words import parse_command

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
    from kestrelctl.core.model.job.ending_rules import STOP_SIGNALS

    name = str(text).strip().upper().removeprefix("SIG")
    if name and name not in STOP_SIGNALS:
        raise UsageError(
            f"not a stop signal: {str(text)[:40]!r}", hint=f"write one of {', '.join(STOP_SIGNALS)}"
        )
    return name


#: The endings of names of job files.
JOB_FILE_SUFFIXES = (".toml", ".ini", ".job")
#: The directory of a task that is a scratch directory of its own.
SCRATCH = "scratch"
#: The name that `--keep` had, which is the long name of `-o` for all other commands.
FORMER_KEEP = "output"

_CANNOT_SEE = "The pool cannot see your files: use the command line"
_NO_ITEMS = f"{_CANNOT_SEE}, or --array 1-100"
_TELLS = "I answer at once, and tell you when the job ends"
_TIME = Parsed(metavar="TIME", parse=parse_duration)
_SIZE = Parsed(metavar="SIZE", parse=parse_capacity)
_GLOB = Text(metavar="GLOB")
_COMMAND = Command(metavar="COMMAND", parse=parse_command)
#: Assets with an option of their own.
NAMED_ASSETS = ("cpus", "memory", "disk", "gpus")


def _other_assets(spec: JobSpec) -> str:
    others = sorted(spec.request.keys() - set(NAMED_ASSETS))
    return ", ".join(f"{name}={spec.request[name]:.10g}" for name in others)


def _begin(spec: JobSpec) -> str:
    if spec.begin is None:
        return ""
    if spec.begin.at is None:
        return f"{duration(spec.begin.seconds)} after its submission"
    return datetime.fromtimestamp(spec.begin.at).strftime("%Y-%m-%d %H:%M:%S")


def _checkpoints(spec: JobSpec) -> str:
    program = spec.program
    if not program.checkpoints:
        return ""
    code = program.checkpoint_exit
    goes_on = "" if code is None else f", and exit code {code} goes on"
    every = duration(program.checkpoint_seconds or DEFAULT_SECONDS)
    return f"{shlex.join(program.checkpoints)} every {every}{goes_on}"


def _pauses(spec: JobSpec) -> str:
    longest = duration(spec.max_backoff_seconds)
    words = (duration(spec.backoff_seconds), f"at most {longest}" if longest else "")
    return ", ".join(filter(None, words))


def _stage(name: str) -> Row:
    def shows(spec: JobSpec) -> str:
        return "; ".join(_how(stage) for stage in spec.program.stages if stage.name == name)

    return Row(shows, f"stage {name}")


def _how(stage: Stage) -> str:
    limit = f"{duration(stage.time_limit_seconds)} a try" if stage.time_limit_seconds else ""
    tries = f"up to {plural(stage.tries, 'try', 'tries')}" if stage.tries > 1 else ""
    rules = ", ".join(filter(None, (limit, tries)))
    return shlex.join(stage.argv) + (f" ({rules})" if rules else "")


def _variables(spec: JobSpec) -> str:
    return shlex.join(f"{name}={value}" for name, value in spec.program.env.items())


ON_END = Option(
    name="on-end",
    value=Text(metavar="COMMAND"),
    text="Run a shell command on this machine when a job has ended; it finds $KESTREL_JOB and "
    "$KESTREL_OUTCOME.",
    in_file=False,
    not_in_chat=_TELLS,
)

WHAT = Section(
    "What to run",
    (
        Option(
            name="array",
            value=Ranges(metavar="A-B[:S],…", parse=parse_array),
            repeats=True,
            text="Run one task for each number: 1-1000, 0-9:3 (every third), 1-3,5-7.  [default: "
            "one task, 0]",
        ),
        Option(
            name="each-line",
            value=File(metavar="FILE", stays="-"),
            text="Run one task for each line of a file; - is standard input.",
            not_in_chat=_NO_ITEMS,
        ),
        Option(
            name="from-json",
            value=File(metavar="FILE"),
            text="Run one task for each element of a JSON array.",
            not_in_chat=_NO_ITEMS,
        ),
        Option(
            name="paste-items",
            value=Flag(),
            text="Let a line or element become part of the text of sh -c, which runs it as code.",
            not_in_chat=_NO_ITEMS,
        ),
        Option(name="name", lands="name", text="Name of the job, for people."),
        Option(
            name="env",
            value=Pairs(metavar="K=V"),
            repeats=True,
            text="Environment variable for the tasks: MODE=fast; repeatable.",
            row=Row(_variables, "variables"),
        ),
        Option(
            name="export",
            value=Words(metavar="NAME,…|ALL"),
            repeats=True,
            text="Pass variables of your environment to the tasks: PATH,LANG; ALL is every one "
            "that seems no secret.  [default: none]",
            not_in_chat="the pool cannot see your environment: use the command line, or --env",
        ),
        Option(
            name="workdir",
            also=("chdir",),
            value=File(metavar=f"DIR|{SCRATCH}", stays=SCRATCH),
            text=f"Directory in which tasks start; `{SCRATCH}` is an empty one for each.  "
            "[default: the current directory on a pool of `up`, else scratch]",
            row=Row(lambda spec: spec.program.workdir or SCRATCH, "directory"),
            not_in_chat="what is submitted in a chat starts in scratch directories",
        ),
        Option(
            name="service",
            value=Flag(),
            lands="service",
            text="Keep tasks running: start each again whenever it ends, until the job is "
            "cancelled.",
        ),
        Option(
            name="copies",
            value=Whole(least=1),
            text="Number of tasks of a --service.  [default: 1]",
        ),
        Option(
            name="span",
            value=Whole(metavar="N", least=1),
            text="Run N tasks on N workers together, or none: one program, such as one that uses "
            "MPI.",
            row=Row(
                lambda spec: f"{spec.span:,} workers at once" if spec.span > 1 else "", "spans"
            ),
        ),
        Option(
            name="setup",
            value=_COMMAND,
            default=(),
            text="Command that runs before each task's own, on the same worker.",
            in_file=False,
            row=_stage(SETUP),
        ),
        Option(
            name="stage-in",
            value=_COMMAND,
            default=(),
            text="Command that runs next and fetches what the task needs.",
            in_file=False,
            row=_stage(IN),
        ),
        Option(
            name="stage-out",
            value=_COMMAND,
            default=(),
            text="Command that runs after the task's own is done and puts results away; if it "
            "fails, the task does not run again.",
            in_file=False,
            row=_stage(OUT),
        ),
        Option(
            name="cleanup",
            value=_COMMAND,
            lands="program.cleanup",
            text="Command that runs after each task, whatever came of it.",
            row=Row(lambda spec: shlex.join(spec.program.cleanup)),
        ),
        Option(
            name="stage-limit",
            value=Text(metavar="NAME=TIME"),
            repeats=True,
            text="Time limit for one try of a stage (setup, in or out): out=10m; repeatable.  "
            "[default: no limit]",
            in_file=False,
        ),
        Option(
            name="stage-tries",
            value=Text(metavar="NAME=N"),
            repeats=True,
            text="Number of tries of a stage (setup, in or out): in=3; repeatable.  [default: 1]",
            in_file=False,
        ),
    ),
)

HOW_MUCH = Section(
    "How much and how many",
    (
        Option(
            name="cpus",
            value=Decimal(),
            default=1.0,
            says_default=True,
            text="Processors for each task; may be a fraction.",
            row=Row(lambda spec: f"{spec.request.get('cpus', 0):g}"),
        ),
        Option(
            name="memory",
            value=_SIZE,
            default=0,
            text="Memory for each task, and its limit: 512M, 1.5GiB; a task that uses more is "
            "ended.  [default: no request, and the machine's memory as the limit]",
            row=Row(lambda spec: size(int(spec.request.get("memory", 0)))),
        ),
        Option(
            name="gpus",
            value=Decimal(),
            default=0.0,
            text="GPUs for each task; 0.5 is half of one.  [default: 0]",
            row=Row(lambda spec: f"{n:.10g}" if (n := spec.request.get("gpus", 0)) else ""),
        ),
        Option(
            name="time-limit",
            value=_TIME,
            lands="program.time_limit_seconds",
            text="Time that each attempt of a task may take, then it is ended and has failed: 15m. "
            " [default: no limit]",
            row=Row(lambda spec: duration(spec.program.time_limit_seconds)),
        ),
        Option(
            name="max-running",
            value=Whole(least=1),
            lands="max_running",
            text="Number of tasks of the job that may run at once.  [default: no limit]",
            row=Row(lambda spec: str(spec.max_running or "")),
            holds_back="as many of its tasks run as --max-running allows",
        ),
        Option(
            name="disk",
            value=_SIZE,
            default=0,
            text="Disk for each task, and its limit: 2G; a task whose scratch directory is larger "
            "is ended.  [default: no request]",
            row=Row(lambda spec: size(int(spec.request.get("disk", 0)))),
        ),
        Option(
            name="asset",
            value=Pairs(metavar="NAME=AMOUNT"),
            repeats=True,
            text="Amount of any other asset for each task: fpga=1; repeatable.",
            row=Row(_other_assets, "assets"),
        ),
        Option(
            name="retry-memory",
            value=Parsed(metavar="SIZES", parse=parse_capacities),
            lands="retry_memory_bytes",
            text="Run a task that ran out of --memory again with more: 2G,4G is first 2 GiB, then "
            "4 GiB.  [default: let it fail]",
            row=Row(lambda spec: ", then ".join(map(size, spec.retry_memory_bytes))),
        ),
    ),
)

WHERE = Section(
    "Where it runs",
    (
        Option(
            name="requires",
            value=Words(metavar="TAG"),
            repeats=True,
            text="Run only on workers with this tag: LINUX,GPU; comma or repeated.",
            row=Row(lambda spec: " ".join(spec.requires)),
        ),
        Option(
            name="requirements",
            value=Text(metavar="EXPR"),
            default="",
            text="Run only on workers for which this expression is true: 'Memory >= 4096 && Arch "
            '== "X86_64"\'.',
            row=Row(lambda spec: spec.requirements),
        ),
        Option(
            name="rank",
            value=Text(metavar="EXPR"),
            default="",
            text="Prefer workers for which this expression is higher: Memory.",
            row=Row(lambda spec: spec.rank),
        ),
        Option(
            name="isolation",
            value=Choice(words=RUNGS),
            text="Run only on workers that isolate tasks at least this well, systemd being the "
            "best.  [default: any]",
        ),
        Option(
            name="environment",
            value=Text(metavar="NAME"),
            default="",
            text="Run inside an environment of this class, on workers that can make it.",
            row=Row(lambda spec: env.of if (env := spec.program.environment) else ""),
        ),
        Option(
            name="no-flock",
            value=Flag(),
            lands="stays",
            text="Run only on this pool's own workers, never on those of other pools.",
            row=Row(
                lambda spec: "none: it stays on the pool's own workers" if spec.stays else "",
                "neighbours",
            ),
        ),
        Option(
            name="time-request",
            value=_TIME,
            lands="time_request_seconds",
            text="Run only on workers that stay at least this long: 20m.  [default: any]",
            row=Row(lambda spec: duration(spec.time_request_seconds)),
        ),
    ),
)

WHEN = Section(
    "When it runs",
    (
        Option(
            name="priority",
            value=Whole(least=0, most=255),
            lands="priority",
            says_default=True,
            text="Priority among your jobs and others', 0 to 255; higher runs first.",
            row=Row(lambda spec: str(spec.priority)),
        ),
        Option(
            name="after",
            value=JobNames(metavar="JOB[:ok|ended|failed]", parse=parse_after),
            lands="after",
            repeats=True,
            text="Start after this job (7), these (3-9) or your `last` one has ended: ok, in any "
            "way (ended), or badly (failed); repeatable.  [default: ok]",
        ),
        Option(
            name="after-each",
            value=JobNames(metavar="JOB", parse=parse_after_each),
            lands="after_each",
            text="Start each task when the task at the same place in this job is done.",
            row=Row(lambda spec: f"task of job {spec.after_each}" if spec.after_each else ""),
        ),
        Option(
            name="if-parent-fails",
            value=Choice(words=tuple(each.value for each in IfParentFails), made=IfParentFails),
            lands="if_parent_fails",
            says_default=True,
            text="Cancel, hold back or run the job if a job of --after ended otherwise; the same "
            "for each task with --after-each.",
        ),
        Option(
            name="hold",
            value=Flag(),
            lands="held",
            text="Hold the job: start nothing of it until `job release`.",
        ),
        Option(
            name="begin",
            value=Parsed(metavar="TIME", parse=parse_begin),
            lands="begin",
            text="Start nothing of the job before: 2030-12-24T18:00, now+1hour, 2h (from now).  "
            "[default: at once]",
            row=Row(_begin),
            holds_back="it begins {found}",
        ),
        Option(
            name="deadline",
            value=Parsed(metavar="TIME", parse=parse_deadline),
            text="Stop what has not ended by then: 2h (from now), 2030-12-24T18:00.  [default: "
            "never]",
        ),
    ),
)

FILES = Section(
    "Files and output",
    (
        Option(
            name="input",
            value=File(metavar="FILE|ADDRESS[=NAME]"),
            repeats=True,
            text="Put a file or directory into each task's scratch directory; also an address that "
            "workers read, or job:ID for the files that another job's tasks left; repeatable.",
            not_in_chat=_CANNOT_SEE,
        ),
        Option(
            name="keep",
            value=_GLOB,
            lands="program.outputs",
            repeats=True,
            text="Keep files that a task leaves in its scratch directory, for `job fetch`: "
            "'*.csv'; repeatable.",
            row=Row(lambda spec: shlex.join(spec.program.outputs), "outputs"),
        ),
        Option(
            name="fetch",
            value=File(metavar="DIR"),
            text="Wait, then copy the files of --keep to DIR/TASK/ here.",
            in_file=False,
            not_in_chat=_NO_ITEMS,
        ),
        Option(
            name="stdin",
            value=File(metavar="FILE|ADDRESS"),
            text="File that each task reads as its standard input.  [default: empty]",
            not_in_chat=_CANNOT_SEE,
        ),
        Option(
            name="stdout",
            value=File(metavar="PATTERN"),
            text="Wait, then write the standard output of tasks to files here: out-{n}.txt.",
            in_file=False,
            not_in_chat=_NO_ITEMS,
        ),
        Option(
            name="stderr",
            value=File(metavar="PATTERN"),
            text="Wait, then write the standard error of tasks to files here: err-{n}.txt.",
            in_file=False,
            not_in_chat=_NO_ITEMS,
        ),
        Option(
            name="join",
            value=Flag(),
            lands="program.join",
            text="Join standard error to standard output, like 2>&1.",
            row=Row(
                lambda spec: "into standard output" if spec.program.join else "", "standard error"
            ),
        ),
        Option(
            name="keep-logs",
            value=Flag(),
            lands="program.keep_logs",
            text="Keep the whole output of tasks in the pool's file share, so that it outlives "
            "their workers.",
            row=Row(
                lambda spec: "kept in the file share" if spec.program.keep_logs else "", "logs"
            ),
        ),
        Option(
            name="output-to",
            value=Text(metavar="ADDRESS"),
            lands="program.output_to",
            text="Address to which workers copy the files of --keep instead: "
            "file:///shared/results; each task has its own directory there.",
            row=Row(lambda spec: spec.program.output_to, "outputs go to"),
        ),
        Option(
            name="checkpoint",
            value=_GLOB,
            lands="program.checkpoints",
            repeats=True,
            text="Store these files of a task's scratch directory as a checkpoint, from which its "
            "next attempt goes on: 'state*'; repeatable.",
            row=Row(_checkpoints, "checkpoints"),
        ),
        Option(
            name="checkpoint-every",
            value=_TIME,
            lands="program.checkpoint_seconds",
            text="Time between two checkpoints of a task that runs.  [default: 10m]",
        ),
        Option(
            name="checkpoint-exit",
            value=Whole(metavar="CODE", least=1, most=MAX_EXIT_CODE),
            lands="program.checkpoint_exit",
            text="Exit code with which a task says: go on later, from my checkpoint. Often 85.",
        ),
    ),
)

WHEN_IT_FAILS = Section(
    "When it fails",
    (
        Option(
            name="max-failures",
            value=Whole(least=1),
            lands="max_failures",
            says_default=True,
            text="Number of attempts that may fail before a task has failed; 1 is no retry.",
            row=Row(lambda spec: str(spec.max_failures)),
        ),
        Option(
            name="retry-on",
            value=Parsed(metavar="EXITS", parse=parse_exits),
            lands="retry_on",
            text="Retry only after these exit codes or signals: 75,100-110,SIGKILL; needs "
            "--max-failures.  [default: any]",
            row=Row(lambda spec: exits_text(spec.retry_on)),
        ),
        Option(
            name="no-retry-on",
            value=Parsed(metavar="EXITS", parse=parse_exits),
            lands="no_retry_on",
            text="Never retry after these exit codes or signals: 2,64-78; needs --max-failures.",
            row=Row(lambda spec: exits_text(spec.no_retry_on)),
        ),
        Option(
            name="success-exit",
            value=Parsed(metavar="CODES", parse=parse_exits),
            lands="program.success_exits",
            text="Exit codes that count as success: 0,3 or 0-2.  [default: 0]",
            row=Row(lambda spec: exits_text(spec.program.success_exits)),
        ),
        Option(
            name="backoff",
            value=_TIME,
            lands="backoff_seconds",
            text="Pause before a failed task is tried again; doubles each time.  [default: 1s]",
            row=Row(_pauses),
        ),
        Option(
            name="max-backoff",
            value=_TIME,
            lands="max_backoff_seconds",
            text="Longest pause before a failed task is tried again.  [default: 1m, or --backoff "
            "if that is longer]",
        ),
        Option(
            name="max-losses",
            value=Whole(least=1),
            lands="max_losses",
            says_default=True,
            text="Number of workers that a task may lose before it is given up as lost.",
            row=Row(lambda spec: str(spec.max_losses)),
        ),
        Option(
            name="on-worker-lost",
            value=Choice(words=tuple(each.value for each in OnWorkerLost), made=OnWorkerLost),
            lands="on_worker_lost",
            says_default=True,
            text="Run the task elsewhere at once (requeue), or wait for its worker to come back.",
            row=Row(lambda spec: spec.on_worker_lost.value),
        ),
        Option(
            name="stop-after",
            value=Whole(metavar="N", least=1),
            lands="stop_after",
            text="Stop the job when N of its tasks have failed.  [default: never]",
            row=Row(lambda spec: plural(spec.stop_after, "failed task") if spec.stop_after else ""),
        ),
        Option(
            name="hold-after",
            value=Whole(metavar="N", least=1),
            lands="hold_after",
            text="Hold the job when N attempts in a row have failed, until `job release`.  "
            "[default: never]",
            row=Row(
                lambda spec: f"{plural(n, 'failure')} in a row" if (n := spec.hold_after) else ""
            ),
        ),
        Option(
            name="stop-signal",
            value=Parsed(metavar="NAME", parse=parse_stop_signal),
            lands="program.stop_signal",
            text="Signal that asks a task to end at a limit or a cancel: INT, HUP.  [default: "
            "TERM]",
            row=Row(
                lambda spec: f"SIG{spec.program.stop_signal}" if spec.program.stop_signal else ""
            ),
        ),
        Option(
            name="stop-grace",
            value=_TIME,
            lands="program.stop_grace_seconds",
            text="Time from that signal until the task is killed.  [default: 2s]",
            row=Row(lambda spec: duration(spec.program.stop_grace_seconds)),
        ),
    ),
)

TOLD = Section(
    "Waiting and being told",
    (
        Option(
            name="wait",
            value=Flag(),
            text="Wait until the job has ended, on a terminal with a progress bar; exit with 0 if "
            "all is done, else 3.",
            in_file=False,
            not_in_chat=_TELLS,
        ),
        Option(
            name="progress",
            value=Flag(),
            text="Wait, and print the progress even if standard error is no terminal.",
            in_file=False,
            not_in_chat=_TELLS,
        ),
        Option(
            name="notify",
            value=Choice(words=tuple(each.value for each in Notify), made=Notify),
            lands="notify",
            says_default=True,
            text="Send you a chat message when the job ends.",
        ),
        ON_END,
        Option(
            name="key",
            text="Key of this submission: a second one with the same key makes no second job.  "
            "[default: a fresh key]",
            value=Text(metavar="KEY"),
            in_file=False,
        ),
    ),
)

#: All sections, in the order of help.
SECTIONS = (WHAT, HOW_MUCH, WHERE, WHEN, FILES, WHEN_IT_FAILS, TOLD)
OPTIONS = tuple(option for section in SECTIONS for option in section.options)
