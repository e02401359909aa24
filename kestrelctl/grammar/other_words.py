"""Words of Slurm, HTCondor, HyperQueue, GNU parallel and Nomad, and what says the same here.

What is here is a table of words and pure functions that fill in values; `cli.other_systems` applies
it to a command line that was refused. Sources are the manuals: sbatch(1), squeue(1), scancel(1),
sacct(1), scontrol(1); condor_submit(1), condor_q(1), condor_rm(1); https://it4innovations.github.io
/hyperqueue; parallel(1); https://developer.hashicorp.com/nomad/commands.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from kestrelctl.core.model.job.ending_rules import STOP_SIGNALS
from kestrelctl.core.model.job.placeholders import IN_FILE_NAMES


class OtherOption(NamedTuple):
    """An option of another system.

    Attributes:
        here: what says the same; a word in capitals stands for the value in a form of `FORMS`, and
            only an option with such a word takes one. Empty if nothing has to be said.
        note: what differs here; empty for nothing.
        whole: the whole line, where more than options has to be said: with `COMMAND` for the
            command, and the value in a form as above.
    """

    here: str
    note: str = ""
    whole: str = ""

    @property
    def takes_value(self) -> bool:
        """Whether a value follows."""
        return any(word in FORMS for word in (self.here or self.whole).split())

    def words(self, value: str) -> list[str]:
        """The words that say the same here.

        Raises:
            ValueError: nothing here says what the value means there.
        """
        found: list[str] = []
        for word in self.here.split():
            form = FORMS.get(word)
            found += form(value) if form is not None else [word]
        return found


# Values.


def _mebibytes(value: str) -> list[str]:
    return [f"{value}M" if value.isdecimal() else value]


def _kibibytes(value: str) -> list[str]:
    return [f"{value}K" if value.isdecimal() else value]


def _minutes(value: str) -> list[str]:
    """A time of Slurm: `90` and `90:30` are minutes, and seconds; `1-12` days and hours."""
    if value.isdecimal():
        return [f"{value}m"]
    two = re.fullmatch(r"(\d+):(\d{2})", value)
    return [f"{two[1]}m{two[2]}s"] if two is not None else [value]


def _pattern(value: str) -> list[str]:
    """The name of a file of output, with `{n}` for the number of a task."""
    here = re.sub(r"%\{(CWD|SUBMIT_DIR)\}", ".", value)
    return [re.sub(r"\{n\}([._-]?\{n\})+", "{n}", IN_FILE_NAMES.sub("{n}", here))]


def _dependency(value: str) -> list[str]:
    """Turns `afterok:12:13,afterany:7` into options `--after`."""
    words: list[str] = []
    for part in value.split(","):
        kind, _, jobs = part.partition(":")
        ending = {"afterok": "", "afterany": ":ended", "after": ":ended", "afternotok": ":failed"}
        if kind in ending:
            for job in filter(None, jobs.split(":")):
                words += ["--after", job.partition("+")[0] + ending[kind]]
        elif kind == "aftercorr":
            words += ["--after-each", jobs]
        elif kind.isdecimal():
            words += ["--after", kind]
        else:
            raise ValueError(value)
    return words


def _array(value: str) -> list[str]:
    """Indexes of Slurm with a limit of tasks that run at once, or with `_` within numbers."""
    ids, _, most = re.sub(r"[_\[\]]", "", value).partition("%")
    return ["--array", ids, *(["--max-running", most] if most else [])]


def _tags(value: str) -> list[str]:
    """Features that a machine must all have: `gpu`, `intel&gpu`."""
    if not re.fullmatch(r"[\w.&,-]+", value):
        raise ValueError(value)
    return [word for each in re.split("[&,]", value) for word in ("--requires", each)]


def _machine(operator: str) -> Callable[[str], list[str]]:
    def expression(value: str) -> list[str]:
        if not re.fullmatch(r"[\w.-]+", value):
            raise ValueError(value)
        return ["--requirements", f'Machine {operator} "{value}"']

    return expression


def _gpus(value: str) -> list[str]:
    """Reads `2` or `a100:2`."""
    kind, _, count = value.rpartition(":")
    return ["--gpus", count, *(["--requires", kind] if kind else [])]


def _generic_resources(value: str) -> list[str]:
    """Reads `gpu:2`, `gpu:a100:2` or `fpga:1`, several with commas."""
    words: list[str] = []
    for each in value.split(","):
        name, *rest = each.split(":")
        count = rest[-1] if rest and rest[-1].isdecimal() else "1"
        if name in ("gpu", "gpus"):
            words += ["--gpus", count]
            words += ["--requires", rest[0]] if rest and not rest[0].isdecimal() else []
        else:
            words += ["--asset", f"{name}={count}"]
    return words


def _licences(value: str) -> list[str]:
    """Reads `matlab:2,fluent`."""
    words: list[str] = []
    for each in value.split(","):
        name, _, count = each.partition(":")
        words += ["--asset", f"{name.partition('@')[0]}={count or 1}"]
    return words


def _resource(value: str) -> list[str]:
    """A resource of HyperQueue: `gpus/nvidia=2`, `mem=100` (MiB), `fpga=1`."""
    name, _, amount = value.partition("=")
    amount = amount.split()[0] if amount else "1"
    if name == "cpus":
        return ["--cpus", amount]
    if name.startswith("gpus"):
        return ["--gpus", amount]
    if name == "mem":
        return ["--memory", *_mebibytes(amount)]
    return ["--asset", f"{name}={amount}"]


def _signal(value: str) -> list[str]:
    """Reads `B:USR1@60`, `TERM@30` or `INT`."""
    name, _, seconds = value.rpartition(":")[2].partition("@")
    name = name.upper().removeprefix("SIG")
    words = ["--stop-signal", name] if name in STOP_SIGNALS else []
    return [*words, *(["--stop-grace", f"{seconds}s"] if seconds else [])]


def _mail(value: str) -> list[str]:
    kinds = {each.upper() for each in value.split(",")}
    if kinds <= {"NONE", "NEVER"}:
        return ["never"]
    return ["failures"] if kinds <= {"FAIL", "ERROR"} else ["always"]


def _one_more(value: str) -> list[str]:
    return [str(int(value) + 1) if value.isdecimal() else value]


def _queue(value: str) -> list[str]:
    return ["--array", f"0-{int(value) - 1}"] if value.isdecimal() and int(value) else []


def _nodes(value: str) -> list[str]:
    least = value.partition("-")[0]
    return [] if least == "1" else ["--span", least]


def _jobs_at_once(value: str) -> list[str]:
    return ["--max-running", value] if value.isdecimal() and int(value) else []


def _input_of_lines(value: str) -> list[str]:
    """`-a` is the array of Slurm, and a file of GNU parallel."""
    return _array(value) if value[:1].isdecimal() else ["--each-line", value]


def _halt(value: str) -> list[str]:
    found = re.search(r"fail=(\d+)$", value)
    return ["--stop-after", found[1]] if found is not None else []


def _export(value: str) -> list[str]:
    """Reads `ALL,LEVEL=3,PATH` or `NONE`."""
    words: list[str] = []
    for each in value.split(","):
        if each not in ("NONE", "NIL"):
            words += ["--env" if "=" in each else "--export", each]
    return words


def _files(option: str) -> Callable[[str], list[str]]:
    return lambda value: [word for each in value.split(",") for word in (option, each.strip())]


#: States of other systems, and those of jobs here.
_STATES = {
    "running": "running", "r": "running", "2": "running",
    "pending": "waiting", "pd": "waiting", "idle": "waiting", "1": "waiting", "queued": "waiting",
    "completed": "done", "cd": "done", "complete": "done", "finished": "done", "4": "done",
    "success": "done", "successful": "done", "dead": "done",
    "f": "failed", "timeout": "failed", "to": "failed", "node_fail": "failed", "nf": "failed",
    "out_of_memory": "failed", "oom": "failed", "aborted": "cancelled", "crashed": "failed",
    "ca": "cancelled", "canceled": "cancelled", "removed": "cancelled", "3": "cancelled",
    "suspended": "held", "s": "held", "hold": "held", "5": "held", "h": "held",
    "completing": "cancelling", "cg": "cancelling",
}  # fmt: skip


def _states(value: str) -> list[str]:
    words: list[str] = []
    for each in value.split(","):
        words += ["--state", _STATES.get(each.strip().lower(), each.strip().lower())]
    return words


def _past(value: str) -> list[str]:
    """A moment of sacct: `now-7days`, `2026-11-01`."""
    back = re.fullmatch(r"now-(\d+)\s*([a-z]*)", value)
    if back is None:
        return ["--since", value]
    unit = back[2][:1] if back[2] else "s"
    return ["--since", f"{int(back[1]) * 7}d" if unit == "w" else f"{back[1]}{unit}"]


#: Words of `OtherOption.here` that stand for the value, and what each makes of it.
FORMS: dict[str, Callable[[str], list[str]]] = {
    "VALUE": lambda value: [value],
    "NOTHING": lambda value: [],
    "MIB": _mebibytes,
    "KIB": _kibibytes,
    "MINUTES": _minutes,
    "SECONDS": lambda value: [value if not value.isdecimal() else f"{value}s"],
    "PATTERN": _pattern,
    "DEPENDENCY": _dependency,
    "ARRAY": _array,
    "ARRAY-OR-FILE": _input_of_lines,
    "GPUS": _gpus,
    "GRES": _generic_resources,
    "LICENCES": _licences,
    "RESOURCE": _resource,
    "SIGNAL": _signal,
    "MAIL": _mail,
    "ONE-MORE": _one_more,
    "QUEUE": _queue,
    "NODES": _nodes,
    "AT-ONCE": _jobs_at_once,
    "HALT": _halt,
    "STATES": _states,
    "PAST": _past,
    "INPUTS": _files("--input"),
    "OUTPUTS": _files("--keep"),
    "EXPORT": _export,
    "RESULTS": lambda value: ["--stdout", f"{value.rstrip('/')}/{{n}}"],
    "TAGS": _tags,
    "ON-MACHINE": _machine("=="),
    "NOT-ON-MACHINE": _machine("!="),
    "FIRST-WORD": lambda value: value.split()[:1],
    "FORMAT": lambda value: ["-o", value] if value in ("json", "jsonl") else [],
    "WORD": lambda value: [value],
}

_MIB = "a number alone is MiB there and bytes here"
_KIB = "a number alone is KiB there and bytes here"
_TIME = "a time without a unit is minutes in Slurm and seconds here, and the limit is for each task"
_NO_PARTITION = "there are no partitions: --requires names a tag of workers"
_NO_ACCOUNT = "there are no accounts to charge: what runs counts for whoever submits it"
_NTASKS = (
    "Slurm's tasks are processes of one job: --span N starts N of them on N workers at once, "
    "--array 1-N runs N on their own"
)
_MAIL = "`kestrelctl user mail ADDRESS` says where a pool that sends mail writes to"
_FAILS = (
    "--max-fails of HyperQueue counts tasks that failed, as --stop-after does, and --max-failures "
    "counts the tries of one task"
)
_OUTPUT = "--keep names files that tasks leave, to be fetched"
_IN_ORDER = "`kestrelctl job logs last --all` prints what all tasks wrote, in their order"
_NO_DRY_RUN = "there is no dry run: a job on hold starts at `kestrelctl job release`"
_COLUMNS = "-o wide and -o json have more columns"
_TAIL = "`… | tail -n N` shows the end of what a task wrote"
_WORKERS = "tasks run on the pool's workers: `kestrelctl worker list`"

#: Options of `submit`. A name without dashes before it is a key of a submit description.
_SUBMIT = {
    # Slurm
    "-J --job-name": OtherOption("--name VALUE"),
    "-c --cpus-per-task": OtherOption("--cpus VALUE"),
    "-n --ntasks": OtherOption("--cpus VALUE", _NTASKS),
    "--ntasks-per-node --tasks-per-node": OtherOption("--cpus VALUE", _NTASKS),
    "-N --nodes": OtherOption("NODES"),
    "--mem": OtherOption("--memory MIB", _MIB),
    "--mem-per-cpu --mem-per-gpu": OtherOption(
        "--memory MIB", f"--memory is for each task, whatever its --cpus; {_MIB}"
    ),
    "-t --time": OtherOption("--time-limit MINUTES", _TIME),
    "--time-min": OtherOption("NOTHING", "--time-limit is the only limit of a task"),
    "-p --partition": OtherOption("TAGS", _NO_PARTITION),
    "-C --constraint": OtherOption("TAGS"),
    "-w --nodelist": OtherOption("ON-MACHINE"),
    "-x --exclude": OtherOption("NOT-ON-MACHINE"),
    "-A --account": OtherOption("NOTHING", _NO_ACCOUNT),
    "--qos": OtherOption("NOTHING", "there are no qualities of service: --priority orders jobs"),
    "--nice": OtherOption("NOTHING", "--priority orders jobs: 100 unless said, a lower one later"),
    "--comment": OtherOption("NOTHING", "a job has a --name, and no comment"),
    "--reservation": OtherOption("NOTHING", "there are no reservations"),
    "-d --dependency": OtherOption("DEPENDENCY"),
    "-a": OtherOption("ARRAY-OR-FILE"),
    "-e --error": OtherOption("--stderr PATTERN"),
    "-i": OtherOption("--stdin VALUE"),
    "-D": OtherOption("--workdir VALUE"),
    "-H": OtherOption("--hold"),
    "-W": OtherOption("--wait"),
    "-Q": OtherOption("-q"),
    "--gres": OtherOption("GRES"),
    "-G --gpus-per-task --gpus-per-node": OtherOption("GPUS"),
    "-L --licenses": OtherOption("LICENCES"),
    "--tmp": OtherOption("--disk MIB", _MIB),
    "--mail-type": OtherOption("--notify MAIL", _MAIL),
    "--mail-user": OtherOption("NOTHING", _MAIL),
    "--signal": OtherOption(
        "SIGNAL", "the signal comes at the limit, and --stop-grace is the time until the kill"
    ),
    "-b": OtherOption("--begin VALUE"),
    "--requeue": OtherOption("", "a task whose worker is lost runs again in any case"),
    "--no-requeue": OtherOption("--max-losses 1"),
    "--exclusive": OtherOption("", "ask for all --cpus of a worker to have it alone"),
    "--parsable": OtherOption("-o quiet"),
    "--test-only": OtherOption("--hold", _NO_DRY_RUN),
    "--get-user-env": OtherOption("--export ALL"),
    "-K --kill-on-bad-exit": OtherOption("--stop-after 1"),
    # HTCondor
    "-queue": OtherOption("QUEUE"),
    "-batch-name": OtherOption("--name VALUE"),
    "-terse": OtherOption("-o quiet"),
    "-spool": OtherOption(""),
    "--request-memory": OtherOption("--memory MIB", _MIB),
    "--request-disk": OtherOption("--disk KIB", _KIB),
    "--request-cpus": OtherOption("--cpus VALUE"),
    "--request-gpus": OtherOption("--gpus VALUE"),
    "--max-retries": OtherOption(
        "--max-failures ONE-MORE", "--max-failures counts the first try, too"
    ),
    "--success-exit-code": OtherOption("--success-exit VALUE"),
    "--max-materialize": OtherOption("--max-running VALUE"),
    "--concurrency-limits": OtherOption("LICENCES"),
    "--allowed-execute-duration --allowed-job-duration": OtherOption("--time-limit SECONDS"),
    "--transfer-input-files": OtherOption("INPUTS"),
    "--transfer-output-files": OtherOption("OUTPUTS"),
    "--initialdir": OtherOption("--workdir VALUE"),
    "--batch-name": OtherOption("--name VALUE"),
    "--getenv": OtherOption("--export ALL"),
    "--universe": OtherOption("NOTHING", "there are no universes"),
    "--notification": OtherOption("--notify MAIL"),
    # HyperQueue
    "--cwd": OtherOption("--workdir VALUE"),
    "--max-fails": OtherOption("--stop-after ONE-MORE", _FAILS),
    "--crash-limit": OtherOption("--max-losses VALUE"),
    "--resource": OtherOption("RESOURCE"),
    "--pin": OtherOption("NOTHING", "tasks are not pinned to processors"),
    "--task-dir": OtherOption("--workdir scratch"),
    "--stream --log": OtherOption("--keep-logs NOTHING", "the pool's file share has the output"),
    "--directives": OtherOption("NOTHING"),
    # GNU parallel
    "-j --jobs --max-procs -P": OtherOption(
        "AT-ONCE", "workers run as many tasks as they have processors for; --max-running bounds it"
    ),
    "--arg-file": OtherOption("--each-line VALUE"),
    "--retries": OtherOption("--max-failures VALUE"),
    "--timeout": OtherOption("--time-limit SECONDS"),
    "--halt": OtherOption("HALT"),
    "--halt-on-error": OtherOption("--stop-after NOTHING 1"),
    "-k --keep-order": OtherOption("", _IN_ORDER),
    "--tag --line-buffer --lb --ungroup -u --group": OtherOption("", _IN_ORDER),
    "--results": OtherOption("RESULTS"),
    "--joblog": OtherOption("NOTHING", "`kestrelctl job tasks last -o json` has each task's times"),
    "--bar --eta": OtherOption("--progress"),
    "--dry-run --dryrun": OtherOption("--hold", _NO_DRY_RUN),
    "--delay": OtherOption("NOTHING", "starts are not delayed: --max-running bounds them"),
    "--memfree": OtherOption("--memory VALUE"),
    "--load": OtherOption("NOTHING", _WORKERS),
    "-S --sshlogin --sshloginfile --slf": OtherOption("NOTHING", _WORKERS),
    "--wd": OtherOption("--workdir VALUE"),
    "--return": OtherOption("--keep VALUE"),
    "--transferfile --tf --basefile --bf": OtherOption("--input VALUE"),
    "-I": OtherOption("NOTHING", "{} stands for the item"),
    "--max-args --max-replace-args": OtherOption("NOTHING", "a task has one line"),
    "--resume --resume-failed --retry-failed": OtherOption(
        "", "`kestrelctl job retry last` runs the failed tasks of a job again"
    ),
    # Nomad
    "-detach --detach": OtherOption("", "submit does not wait unless --wait says so"),
    "-verbose": OtherOption("-v"),
    "-json --json": OtherOption("-o json"),
}

_LIST = {
    "-u --user": OtherOption("--owner VALUE"),
    "-n --jobname": OtherOption("--name VALUE"),
    "-t -s --states --status --filter": OtherOption("STATES"),
    "-j --jobs --job": OtherOption("WORD"),
    "-l --long -nobatch -verbose": OtherOption("-o wide"),
    "-a --all -all -allusers": OtherOption("--limit 0"),
    "--me --mine": OtherOption("all"),
    "-run -running --running": OtherOption("--state running"),
    "-idle --pending --waiting": OtherOption("--state waiting"),
    "-held -hold --held": OtherOption("--state held"),
    "--failed": OtherOption("--state failed"),
    "-constraint -const": OtherOption("--where VALUE"),
    "-limit": OtherOption("--limit VALUE"),
    "-p --partition -A --account -M --clusters": OtherOption(
        "NOTHING", "there are no partitions, accounts and clusters"
    ),
    "--format -format": OtherOption("FORMAT", _COLUMNS),
    "-json --json": OtherOption("-o json"),
    "-X --allocations --noheader": OtherOption(""),
}

#: The beginning of a command for jobs that are looked for.
_THOSE_OF = "kestrelctl COMMAND $(kestrelctl job list"
_CHANGE = {
    "-n --jobname": OtherOption("--name VALUE"),
    "-u --user": OtherOption("", whole=f"{_THOSE_OF} --owner VALUE --state active -o quiet)"),
    "-t --state --states": OtherOption("", whole=f"{_THOSE_OF} all STATES -o quiet)"),
    "-constraint -const": OtherOption("", whole=f"{_THOSE_OF} all --where VALUE -o quiet)"),
    "--me -all --all": OtherOption("all"),
    "-f --full -i --interactive -detach -yes -y --yes --force -force": OtherOption(""),
    "-purge": OtherOption("", "an ended job is deleted with `kestrelctl job forget`"),
}

#: Command -> names that other systems have, divided by blanks -> what says the same.
OPTIONS: Mapping[str, Mapping[str, OtherOption]] = {
    "submit": _SUBMIT,
    "job list": _LIST
    | {"--starttime --start --since": OtherOption("", whole="kestrelctl job history PAST")},
    "job history": _LIST | {"-S --starttime --start": OtherOption("PAST")},
    "job cancel": _CHANGE
    | {"-reason --reason": OtherOption("NOTHING", "a cancel has no reason")},
    "job hold": _CHANGE | {"-reason": OtherOption("--reason VALUE")},
    "job release": _CHANGE,
    "job forget": _CHANGE,
    "job tasks": {
        "--tasks --task": OtherOption("WORD"),
        "--filter --states --status": OtherOption("STATES"),
        "--running": OtherOption("--state running"),
        "--waiting --pending": OtherOption("--state waiting"),
        "-verbose": OtherOption("-o wide"),
        "-json": OtherOption("-o json"),
    },
    "job logs": {
        "--tasks --task -t": OtherOption("WORD"),
        "-stderr": OtherOption("--stderr"),
        "-tail": OtherOption("", _TAIL),
        "--tail -n --lines": OtherOption("NOTHING", _TAIL),
        "-job": OtherOption(""),
    },
    "job wait": {
        "-num": OtherOption("--any NOTHING"),
        "-wait": OtherOption("--timeout SECONDS"),
    },
    "job info": {
        "-j --jobs": OtherOption("WORD"),
        "-verbose -d --details": OtherOption(""),
        "-json": OtherOption("-o json"),
    },
    "worker list": {
        "-constraint": OtherOption("--where VALUE"),
        "-N --Node -avail -total -state -compact -a --all": OtherOption(""),
        "-l --long -verbose -R --list-reasons": OtherOption("-o wide"),
        "-p --partition": OtherOption("NOTHING", _NO_PARTITION),
        "-json": OtherOption("-o json"),
    },
    "worker drain": {
        "-enable -yes -force -graceful": OtherOption(""),
        "-reason": OtherOption("NOTHING"),
        "-deadline": OtherOption("NOTHING", "what runs is waited for: `worker drain --help`"),
    },
}  # fmt: skip

_WITH_NUMBERS = re.compile(f".*(?:{IN_FILE_NAMES.pattern}).*")
#: Command -> an option of our own -> what says the same for values that it does not take here.
VALUES: Mapping[str, Mapping[str, tuple[re.Pattern[str], OtherOption]]] = {
    "submit": {
        "--array": (re.compile(r".*[%_\[].*"), OtherOption("ARRAY")),
        "-o": (
            re.compile(r"(?!(table|wide|json|jsonl|quiet)$).*"),
            OtherOption("--stdout PATTERN", "-o says how the answer is printed"),
        ),
        "--output": (_WITH_NUMBERS, OtherOption("--stdout PATTERN", _OUTPUT)),
        "--stdout": (_WITH_NUMBERS, OtherOption("--stdout PATTERN")),
        "--stderr": (_WITH_NUMBERS, OtherOption("--stderr PATTERN")),
        "--cpus": (re.compile(r"\d+ .*"), OtherOption("--cpus FIRST-WORD")),
        "--after": (re.compile(r"after.*"), OtherOption("DEPENDENCY")),
        "--gpus": (re.compile(r"\w+:\d+"), OtherOption("GPUS")),
        "--env": (
            re.compile(r"[^=]+"),
            OtherOption("--export VALUE", "--env NAME=VALUE sets one, --export NAME passes yours"),
        ),
        "--environment": (
            re.compile(r"\w+=.*"),
            OtherOption("--env VALUE", "--environment names a class of environments"),
        ),
        "--export": (
            re.compile(r"NONE|NIL|.*=.*"),
            OtherOption("EXPORT", "--export takes names alone, and without it nothing goes along"),
        ),
        "--notify": (re.compile(r"(?!(never|always|failures)$).*"), OtherOption("--notify MAIL")),
    },
    "job list": {
        "--state": (re.compile(r".*"), OtherOption("STATES")),
        "-o": (re.compile(r".*%.*"), OtherOption("NOTHING", _COLUMNS)),
    },
    "job history": {
        "-o": (re.compile(r".*%.*"), OtherOption("NOTHING", _COLUMNS)),
        "--state": (re.compile(r".*"), OtherOption("STATES")),
        "--since": (re.compile(r"now-.*"), OtherOption("PAST")),
    },
    "job tasks": {"--state": (re.compile(r".*"), OtherOption("STATES"))},
}


class OtherCommand(NamedTuple):
    """A command of another system.

    Attributes:
        here: the command that does the same, with fixed options.
        with_words: the command if arguments follow; empty for the same.
        note: what differs.
        second: the option here for its second argument.
        most: the number of arguments that mean something here; None for any number.
        hint: what to do where nothing does the same; `here` is empty then.
    """

    here: str
    with_words: str = ""
    note: str = ""
    second: str = ""
    most: int | None = None
    hint: str = ""


_STOPPED_FIRST = "a job that is active is stopped first: `kestrelctl job cancel`"
_HOLD = "what runs goes on"
_WORKER_RUN = (
    "a machine becomes a worker of a pool with the token of `kestrelctl worker enroll` and "
    "`kestrelctl worker join`; `kestrelctl up` starts workers here"
)
_DAG = "a TOML file with a table for each job says which waits for which: docs/workflows.md"
_STAYS = "a job stays as it was submitted: cancel it, and submit it anew"
_NO_ENTRY = "kestrelctl job logs -f 7 3: what a task writes; nobody can enter one"
_SALLOC = "nothing is reserved: each task says what it needs"

#: Place ("" for words after `kestrelctl`, else the group) -> words, divided by `|`.
_COMMANDS: Mapping[str, Mapping[str, OtherCommand]] = {
    "": {
        "sbatch|qsub|bsub|condor_submit|enqueue|run": OtherCommand("submit"),
        "srun": OtherCommand("submit --wait"),
        "salloc": OtherCommand("submit --wait", note=_SALLOC),
        "condor_submit_dag": OtherCommand("submit", note=_DAG),
        "parallel": OtherCommand("submit"),
        "squeue|qstat|bjobs|condor_q|q|queue|ps|ls|jobs": OtherCommand("job list"),
        "condor_q -better-analyze|condor_q -analyze": OtherCommand("job explain"),
        "scancel|qdel|bkill|condor_rm|kill|rm|abort": OtherCommand("job cancel"),
        "delete|remove": OtherCommand("job forget", note=_STOPPED_FIRST),
        "stop": OtherCommand("down", "job cancel"),
        "start|init|serve|agent": OtherCommand("up"),
        "status": OtherCommand("pool status", "job info"),
        "show|describe": OtherCommand("job info"),
        "log|cat|tail|output|sattach|condor_tail|peek": OtherCommand("job logs"),
        "sacct|condor_history": OtherCommand("job history"),
        "seff|sstat": OtherCommand("job info"),
        "sinfo|condor_status|nodes|workers|hosts": OtherCommand("worker list"),
        "sprio|sshare|condor_userprio": OtherCommand("user list"),
        "sreport|condor_qusers": OtherCommand("user usage"),
        "condor_hold|shold|suspend|pause": OtherCommand("job hold", note=_HOLD),
        "condor_release|resume|continue": OtherCommand("job release"),
        "condor_transfer_data|download": OtherCommand("job fetch"),
        "condor_drain|drain|cordon": OtherCommand("worker drain"),
        "condor_top|dashboard|monitor|smap|sview|htop": OtherCommand("top"),
        "scontrol hold|scontrol suspend": OtherCommand("job hold", note=_HOLD),
        "scontrol release|scontrol resume": OtherCommand("job release"),
        "scontrol requeue": OtherCommand("job retry"),
        "scontrol show job": OtherCommand("job list", "job info"),
        "scontrol show node|scontrol show nodes": OtherCommand("worker list", "worker info"),
        "alloc logs|task logs": OtherCommand("job logs"),
        "alloc status|task list|task info": OtherCommand("job tasks"),
        "alloc stop": OtherCommand("job cancel"),
        "task cancel": OtherCommand("job cancel", second="--task"),
        "task explain": OtherCommand("job explain", most=1),
        "condor_prio|condor_qedit": OtherCommand("", hint=_STAYS),
        "scontrol update": OtherCommand(
            "", hint=f"{_STAYS}; for a node: kestrelctl worker drain w1"
        ),
        "condor_suspend": OtherCommand("job hold", note=_HOLD),
        "condor_continue": OtherCommand("job release"),
        "condor_version": OtherCommand("--version"),
        "condor_dagman": OtherCommand("submit", note=_DAG),
        "condor_off": OtherCommand("worker drain"),
        "condor_on": OtherCommand("worker resume"),
        "alloc restart": OtherCommand("job retry"),
        "submit-file": OtherCommand("submit"),
        "output-log show": OtherCommand("job logs"),
        "sdiag": OtherCommand("pool status"),
        "sacctmgr show user|sacctmgr list user": OtherCommand("user list"),
        "condor_ssh_to_job|alloc exec|attach": OtherCommand("", hint=_NO_ENTRY),
        "condor_wait": OtherCommand("", hint="kestrelctl job wait 7"),
        "alloc add|alloc list": OtherCommand("", hint="docs/batch.md: workers from a batch system"),
        "node status": OtherCommand("worker list", "worker info"),
        "node drain|node eligibility -disable": OtherCommand("worker drain"),
        "node drain -disable|node eligibility -enable": OtherCommand("worker resume"),
        "server start|server run": OtherCommand("up"),
        "server stop": OtherCommand("down"),
        "server info|server members": OtherCommand("pool status"),
        "system gc": OtherCommand("job forget all"),
        "help": OtherCommand("--help"),
        "version": OtherCommand("--version"),
    },
    "job": {
        "delete|remove|purge|clean": OtherCommand("job forget", note=_STOPPED_FIRST),
        "kill|stop|rm|del|abort|terminate": OtherCommand("job cancel"),
        "status|show|inspect|describe|get": OtherCommand("job list", "job info"),
        "ls|ps|q|queue|summary": OtherCommand("job list"),
        "log|output|cat|peek": OtherCommand("job logs"),
        "tail": OtherCommand("job logs -f"),
        "run|submit-file": OtherCommand("submit"),
        "exec|attach": OtherCommand("", hint=_NO_ENTRY),
        "update|alter|modify": OtherCommand("", hint=_STAYS),
        "resume|unhold|continue|unpause": OtherCommand("job release"),
        "suspend|pause": OtherCommand("job hold", note=_HOLD),
        "rerun|restart|requeue|resubmit": OtherCommand("job retry"),
        "allocs|task": OtherCommand("job tasks"),
        "task-ids": OtherCommand("job tasks -o quiet"),
        "why|analyze|analyse": OtherCommand("job explain"),
        "download|pull": OtherCommand("job fetch"),
        "events|eval|timeline": OtherCommand("job story"),
        "progress": OtherCommand("job wait --progress"),
        "watch": OtherCommand("job wait --progress"),
    },
    "worker": {
        "start": OtherCommand("worker run", note=_WORKER_RUN),
        "stop|disable|cordon|down": OtherCommand("worker drain"),
        "undrain|enable|uncordon|activate": OtherCommand("worker resume"),
        "remove|delete|rm": OtherCommand("worker revoke"),
        "status|show": OtherCommand("worker list", "worker info"),
        "ls": OtherCommand("worker list"),
    },
    "pool": {"info|show": OtherCommand("pool status"), "list|ls": OtherCommand("context list")},
    "user": {"show": OtherCommand("user info"), "ls": OtherCommand("user list")},
}
#: Programs whose subcommands somebody types behind ours: `kestrelctl hq job list`.
PROGRAMS = ("hq", "nomad", "htcondor", "slurm", "condor")
COMMANDS: Mapping[str, Mapping[tuple[str, ...], OtherCommand]] = {
    place: {
        tuple(words.split()): found for names, found in table.items() for words in names.split("|")
    }
    for place, table in _COMMANDS.items()
}
#: The most words that name a command there: `scontrol show job`.
MOST_WORDS = max(len(words) for table in COMMANDS.values() for words in table)

#: Endings of names of files that describe jobs of another system -> that system.
FILES = {
    ".sub": "HTCondor", ".submit": "HTCondor", ".dag": "HTCondor", ".hcl": "Nomad",
    ".nomad": "Nomad",
}  # fmt: skip
#: The beginning of a line of a script that describes the job to another system -> that system.
DIRECTIVES = {"#SBATCH": "Slurm", "#HQ": "HyperQueue", "#PBS": "PBS", "#BSUB": "LSF"}


def option_called(command: str, name: str) -> OtherOption | None:
    """Finds what says the same here as an option of another system; None if nothing does.

    Args:
        command: ours, such as `job list`.
        name: as it was typed, with its dashes, without a value.
    """
    plain = name.replace("_", "-") if name.startswith("--") else name
    for names, found in OPTIONS.get(command, {}).items():
        if plain in names.split():
            return found
    return None


def value_elsewhere(command: str, name: str, value: str) -> OtherOption | None:
    """Finds what says the same as a value that our own option takes elsewhere only, or None."""
    found = VALUES.get(command, {}).get(name)
    return found[1] if found is not None and found[0].fullmatch(value) else None


def task_of_job(word: str) -> tuple[str, str] | None:
    """The job and the task in `12_3`, `12_[1-5]` (Slurm) or `12.3` (HTCondor)."""
    match = re.fullmatch(r"(\d{1,18})[_.@]\[?(\d[\d,-]{0,60})\]?", word, re.ASCII)
    return (match[1], match[2]) if match is not None else None


def directives(lines: Iterable[str]) -> tuple[str, list[str]]:
    """Reads what a script tells another system: the mark of its lines, and the words behind them.

    Returns:
        "" and nothing if there are none.
    """
    mark = ""
    words: list[str] = []
    for line in lines:
        first, _, rest = line.strip().partition(" ")
        if first in DIRECTIVES:
            mark = first
            try:
                words += shlex.split(rest, comments=True)
            except ValueError:
                continue
        elif line.strip() and not line.startswith("#"):
            break
    return mark, words
