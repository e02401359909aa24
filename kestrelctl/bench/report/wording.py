"""The words of the report page, and of the end of a bench, about its numbers."""

from __future__ import annotations

from kestrelctl.bench.estimate import Expectation
from kestrelctl.bench.result import BenchResult, BenchRun, Limit
from kestrelctl.grammar.quantities import duration

LIMIT_WORDS = {
    "workers": "workers {} busy",
    "spawn": "{} of bare process starts",
}


BEYOND_LIMIT = (
    "more tasks a second than the bare rate, so this rate was no limit; something else used the "
    "machine each time that it was measured"
)


def share_of_limit(share: float) -> str:
    """Writes a share: `74%`; one above 1 only says that the limit was measured too low."""
    return f"{share:.0%}" if share < 1.005 else ">100%"


def closing(result: BenchResult) -> list[str]:
    """Says what limits this machine, and how close the runs came to it: at most two sentences.

    Empty for a sweep, which has knees instead, for a bench that ended early, and for runs without a
    known limit.
    """
    limits = [(run, limit) for run in result.runs if (limit := result.limit(run))]
    if result.sweep or result.ended_early or not limits:
        return []
    starting, busy = _shares(limits, "spawn"), _shares(limits, "workers")
    rate = result.spawn_limit_per_second
    if rate and starting:
        jobs = result.runs[0].jobs
        times = len(result.spawn_rates_per_second)
        best = f" (the best of {times} measurements)" if times > 1 else ""
        first = (
            f"Starting processes limits this machine: it starts {rate:,.0f} a second when nothing "
            f"else runs{best}, so that {jobs:,} take {duration(jobs / rate)} at least."
        )
    else:
        least = [f"{duration(limit.seconds)} with sleep {run.sleep}" for run, limit in limits]
        first = f"The number of workers is the limit: the tasks take at least {_and(least)}."
    reached = []
    if starting:
        reached.append(f"the pool came to {_and(starting)} of that rate")
    if busy:
        reached.append(f"the workers were busy for {_and(busy)} of the time")
    second = ", and ".join(reached)
    return [first, f"{second[0].upper()}{second[1:]}."]


def _shares(limits: list[tuple[BenchRun, Limit]], of: str) -> list[str]:
    """Lists the shares of this limit that its runs reached."""
    found = []
    for run, limit in limits:
        if limit.of == of:
            share = limit.seconds / run.makespan_seconds
            percent = f"{100 * share:.0f} %" if share < 1.005 else "more than 100 %"
            found.append(f"{percent} (sleep {run.sleep})")
    return found


def _and(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def announcement(expected: Expectation) -> str:
    """Announces the runs that are to come, and how long they will take."""
    runs = ", ".join(
        f"sleep {run.sleep} on {run.size} workers {duration(run.seconds)}" for run in expected.runs
    )
    return (
        f"a trial came to {expected.tasks_per_second:,.0f} tasks/s; "
        f"this will take about {duration(expected.seconds)} ({runs})"
    )


NUMBERS = (
    (
        "Makespan",
        "From the submission of the job to the last accepted result, in seconds. Starting the "
        "pool is not part of it.",
    ),
    (
        "Limit",
        "The larger of two bounds. <em>Workers</em>: N tasks of t seconds (mean) on W workers need "
        "N·t/W seconds, whatever schedules them. <em>Spawn</em>: a machine that starts R processes "
        "a second needs N/R seconds for N tasks that are processes. “Of limit” is this bound over "
        "the makespan; “busy” means that the workers are the limit, and is their utilisation.",
    ),
    (
        "What the limit is worth",
        "N·t/W is arithmetic. A makespan below it means a wrong clock or worker count, and such a "
        "run is refused, not reported. The spawn limit is measured before, between and after the "
        "runs: one process per core starts and reaps <code>sleep 0</code> in the environment of a "
        "task and does nothing else. What else uses the machine can only lower it, so the best "
        "counts. The pool has to share the same cores, so 100 % is out of reach. “&gt;100%” says "
        "that something else used the machine each time that the limit was measured.",
    ),
    (
        "Efficiency, knee",
        "Efficiency is the utilisation of one task length: N·t/W over the makespan. The knee is "
        "the length W/R, where R is the tasks a second measured with <code>sleep 0</code> "
        "on as many workers. It is arithmetic, not a promise: shorter tasks cannot keep W workers "
        "busy, and with tasks of just this length dispatch has no time to spare, so that workers "
        "are often only half busy. From which length on they are busy is measured. On one machine "
        "R is mostly what its cores can start.",
    ),
    (
        "Lost, duplicates",
        "Tasks without an accepted result; tasks with more than one. Both have to be 0.",
    ),
    (
        "Latency",
        "What dispatch added to a task: from its hand-out to its report at the manager, less the "
        "time it waited at the worker behind others and the time it ran. Median and 99th "
        "percentile.",
    ),
    (
        "2009, times 2009",
        "Tasks per second of 2009, and those of today over them. Where the workers are the limit, "
        "a perfect run of today is not much faster than a good one of then.",
    ),
)
