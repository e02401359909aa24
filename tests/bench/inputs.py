"""A large input for many tasks on workers that share nothing: how often it is sent, and how fast.

PYTHONPATH=tests/integration python tests/bench/inputs.py [--megabytes 100] [--tasks 1000]
    [--workers 4]

Each worker is a process with a cache of its own, and runs one task at a time, which looks at a byte
of the file. The same tasks run without the file first, and again when it is in all caches.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

from daemons import spawning
from page_desk import Desk
from test_inputs import Site


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, spawning() as spawn:
        desk = Desk(Path(directory))
        try:
            site = Site(desk, spawn)
            hosts = [site.host(f"h{n}") for n in range(options.workers)]
            size_bytes = options.megabytes * 1_000_000
            (desk.directory / "data").write_bytes(os.urandom(size_bytes))
            tasks = f"--array 1-{options.tasks} --workdir scratch --wait --"
            inputs = f"--input data --array 1-{options.tasks} --wait --"
            for what, words in (
                ("without inputs", f"{tasks} head -c 1 /dev/zero"),
                ("nothing there yet", f"{inputs} head -c 1 data"),
                ("in all caches", f"{inputs} head -c 1 data"),
            ):
                began = time.monotonic()
                said = site.submit(words)
                seconds = time.monotonic() - began
                fetched = sum(h.metric("kestrel_worker_input_fetched_bytes_total") for h in hosts)
                times = fetched / size_bytes
                print(f"{what:<18} {seconds:6.2f} s  sent {times:g} times so far; {said[-1]}")
        finally:
            desk.types("kestrelctl down --delete --yes")


if __name__ == "__main__":
    main()
