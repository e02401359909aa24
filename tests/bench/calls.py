"""Calls of functions by an executor: `python tests/bench/calls.py [calls]`, on the pool in use.

With the path of a Python that has `distributed`, as a second argument, the same is done by Dask on
two processes of one thread, in turn with it. Prints the round trip of a warm call, calls a second,
and how fast arguments of 10 MB travel.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

ROUND_TRIPS = 500
LARGE, LARGE_BYTES = 20, 10 << 20
ROUNDS = 3


def same(value: int) -> int:
    return value


def measure(
    who: str,
    calls: int,
    one: Callable[[Callable[..., Any], Any], Any],
    many: Callable[[Callable[..., Any], Iterable[Any]], list[Any]],
) -> None:
    """Prints a line of figures.

    Args:
        one: calls a function, and returns its result.
        many: calls a function with each element, and returns all results.
    """
    one(same, 0)
    took = []
    for number in range(ROUND_TRIPS):
        began = time.perf_counter()
        one(same, number)
        took.append(time.perf_counter() - began)
    began = time.perf_counter()
    assert many(same, range(calls))[-1] == calls - 1
    rate = calls / (time.perf_counter() - began)
    data = [os.urandom(LARGE_BYTES) for _ in range(LARGE)]
    began = time.perf_counter()
    assert many(len, data) == [LARGE_BYTES] * LARGE
    speed = LARGE * LARGE_BYTES / (time.perf_counter() - began) / 1e6
    p50 = 1000 * sorted(took)[ROUND_TRIPS // 2]
    print(f"{who:8} p50 {p50:6.2f} ms, {rate:8,.0f} calls/s, {speed:6,.0f} MB/s", flush=True)


def by_kestrel(calls: int) -> None:
    from kestrelctl.client.executor import KestrelExecutor

    with KestrelExecutor(2) as executor:
        measure(
            "Kestrel",
            calls,
            lambda f, x: executor.submit(f, x).result(),
            lambda f, xs: list(executor.map(f, xs)),
        )


def by_dask(calls: int) -> None:
    from distributed import Client, LocalCluster  # type: ignore[import-not-found]

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):

        def many(f: Callable[..., Any], xs: Iterable[Any]) -> list[Any]:
            elements = list(xs)
            if isinstance(elements[0], bytes):
                elements = client.scatter(elements)
            return list(client.gather(client.map(f, elements, pure=False)))

        measure("Dask", calls, lambda f, x: client.submit(f, x, pure=False).result(), many)


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    other = sys.argv[2] if len(sys.argv) > 2 else ""
    if other == "dask":
        by_dask(wanted)
    else:
        for _ in range(ROUNDS):
            by_kestrel(wanted)
            if other:
                subprocess.run([other, __file__, str(wanted), "dask"], check=True)
