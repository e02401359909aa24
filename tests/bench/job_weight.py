"""How much memory jobs take of a manager for each byte that they count: `job_weight.py`.

Each kind of job is read from JSON and taken in by a pool's core until it has grown by 200 MB, in a
process of its own.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import msgspec
import psutil

from kestrel_worlds.memory_store import MemoryStore
from kestrelctl.core import events as ev
from kestrelctl.core.jobs.queued_bytes import encoded_bytes
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.records import Snapshot
from kestrelctl.core.pool import Pool

MOST_BYTES = 200_000_000
WORDS = 20_000
KINDS = {
    "a job of one word": JobSpec(program=Program(argv=("true",)), held=True),
    "words of 1 letter": JobSpec(program=Program(argv=("true", *["x"] * WORDS)), held=True),
    "words of 2 letters": JobSpec(program=Program(argv=("true", *["xx"] * WORDS)), held=True),
    "words of 8 letters": JobSpec(program=Program(argv=("true", *["x" * 8] * WORDS)), held=True),
    "lines of 24 letters": JobSpec(
        program=Program(argv=("true", "{}")), items=("x" * 24,) * WORDS, count=WORDS, held=True
    ),
    "variables of 4 letters": JobSpec(
        program=Program(argv=("true",), env={f"{n:04x}": "xxxx" for n in range(WORDS)}), held=True
    ),
}


def weigh(kind: str) -> None:
    """Prints what a kind of job takes."""
    pool = Pool(
        Snapshot(epoch=1, secret=MemoryStore().secret, next_job_id=1, jobs=[], workers=[]),
        Config(max_queued_bytes=None),
    )
    text = msgspec.json.encode(KINDS[kind])
    process = psutil.Process()
    gc.collect()
    before = process.memory_info().rss
    jobs = 0
    while process.memory_info().rss < before + MOST_BYTES:
        for _ in range(max(1, 100_000 // len(text))):
            spec = msgspec.json.decode(text, type=JobSpec)
            pool.handle(ev.Submit(at=0.0, request="r", owner="ada", spec=spec))
            jobs += 1
    gc.collect()
    grown = process.memory_info().rss - before
    counted = jobs * encoded_bytes(KINDS[kind])
    print(f"{kind:24} {jobs:9,} jobs {counted / 1e6:7.1f} MB counted, times {grown / counted:4.1f}")


if __name__ == "__main__":
    if sys.argv[1:]:
        weigh(sys.argv[1])
    else:
        for each in KINDS:
            subprocess.run([sys.executable, str(Path(__file__)), each], check=True)
