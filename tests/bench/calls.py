"""Calls of functions by an executor: `python tests/bench/calls.py [calls]`, on the pool in use.

With `dask=PYTHON`, the path of a Python that has `distributed`, the same is done by Dask on two
processes of one thread, and with `parsl=PYTHON` by Parsl's HighThroughputExecutor with two workers,
in turn with it. Prints the round trip of a warm call, calls a second, and how fast arguments of
10 MB travel.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from typing import Any

ROUND_TRIPS = 500
LARGE, LARGE_BYTES = 20, 10 << 20
ROUNDS = 3


def same(value: int) -> int:
    return value


def size(data: bytes) -> int:
    return len(data)


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
    assert many(size, data) == [LARGE_BYTES] * LARGE
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


def by_parsl(calls: int) -> None:
    import parsl  # type: ignore[import-not-found]
    from parsl.config import Config  # type: ignore[import-not-found]
    from parsl.executors import HighThroughputExecutor  # type: ignore[import-not-found]
    from parsl.providers import LocalProvider  # type: ignore[import-not-found]

    executor = HighThroughputExecutor(
        address="127.0.0.1",
        max_workers_per_node=2,
        provider=LocalProvider(init_blocks=1, min_blocks=1, max_blocks=1),
    )
    with tempfile.TemporaryDirectory(prefix="kestrel-parsl-") as place:
        # It neither scales nor keeps a log, and apps record no calls: the fastest that it can be.
        loaded = parsl.load(
            Config(
                executors=[executor],
                strategy="none",
                initialize_logging=False,
                run_dir=place,
            )
        )
        try:
            apps = {each: parsl.python_app(each) for each in (same, size)}
            measure(
                "Parsl",
                calls,
                lambda f, x: apps[f](x).result(),
                lambda f, xs: [future.result() for future in [apps[f](x) for x in xs]],
            )
        finally:
            loaded.cleanup()


BY = {"dask": by_dask, "parsl": by_parsl}

if __name__ == "__main__":
    wanted, *others = sys.argv[1:] or ["20000"]
    if others and others[0] in BY:
        BY[others[0]](int(wanted))
    else:
        for _ in range(ROUNDS):
            by_kestrel(int(wanted))
            for pair in others:
                name, python = pair.split("=", 1)
                programs = f"{os.path.dirname(python)}:{os.environ['PATH']}"  # Parsl starts some
                subprocess.run(
                    [python, __file__, wanted, name],
                    check=True,
                    env={**os.environ, "PATH": programs},
                )
