"""Rubbish expressions and commands of triggers, and outputs of plugins: what breaks, what gets out,
what takes long.

    .venv/bin/python tests/bench/rules.py [EACH] [SEED]

So many of each kind, 100,000 if it is not said; expressions see a pool of 1,000 workers with 100
properties in 50 groups, or a small one. Memory is bounded: what wants 512 MiB more
ends with an error.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from ruleskit import Rubbish, try_command, try_expression, try_printed, world

from kestrelctl.core.triggers.expression import ExpressionError

MOST_MORE_BYTES = 512 << 20


def main(each: int, seed: int) -> int:
    process = psutil.Process()
    views = [world(), world(workers=1_000, properties=100, groups=50)]
    began_bytes = process.memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (began_bytes + MOST_MORE_BYTES,) * 2)
    rubbish = Rubbish(seed)

    def printed(number: int) -> tuple[str, object]:
        output, return_type = rubbish.printed()
        try_printed(output, return_type)
        return repr(output[:200]), None

    def expression(number: int) -> tuple[str, object]:
        text = rubbish.expression()
        return text, try_expression(text, fresh(views[number % 2]))

    def command(number: int) -> tuple[str, object]:
        text = rubbish.command()
        return text, try_command(text, fresh(views[number % 2]))

    kinds: dict[str, Callable[[int], tuple[str, object]]] = {
        "expressions": expression,
        "commands": command,
        "outputs": printed,
    }
    troubles = 0
    for name, make in kinds.items():
        troubles += run(name, make, each)
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"at most {more} MiB in memory, both pools among it")
    return 1 if troubles else 0


def fresh(views: dict[str, object]) -> dict[str, object]:
    """A pool that was never looked at: its sums are made anew."""
    for view in views.values():
        made = getattr(view, "_made", None)
        if made is not None:
            made.clear()
    return views


def run(name: str, make: Callable[[int], tuple[str, object]], each: int) -> int:
    """Makes so many of a kind; returns how many were trouble."""
    values = troubles = 0
    longest, longest_text, total = 0.0, "", 0.0
    for number in range(each):
        began = time.process_time()
        text = ""
        try:
            text, value = make(number)
            values += not isinstance(value, ExpressionError)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            troubles += 1
            if troubles < 20:
                print(f"{name} {number}: {type(error).__name__}: {str(error)[:300]}")
        took = time.process_time() - began
        total += took
        if took > longest:
            longest, longest_text = took, text
    print(
        f"{each:,} {name}: {troubles} troubles, {values:,} came to a value, {total:.0f} s of "
        f"processor time, the longest {1000 * longest:.0f} ms: {longest_text[:200]!r}",
        flush=True,
    )
    return troubles


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    sys.exit(main(*[*given, *(100_000, 1)[len(given) :]]))
