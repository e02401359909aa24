"""The file share beside curl: `python tests/bench/fileshare.py [megabytes] [pairs] [piece MiB …]`.

Sends a file to a private server and gets it back, by FileShare and by `curl` in turn, because
rates of different minutes cannot be compared on a shared machine. curl sends and gets it in one
piece, and neither hashes it nor checks it. Prints each pair and the medians, and how much processor
time the server and FileShare took for a gigabyte each way.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable
from pathlib import Path

import psutil

from kestrelctl.files.share import PIECE_BYTES, FileShare
from kestrelctl.xmpp.prosody import LOOPBACK, PrivateServer
from kestrelctl.xmpp.user import UserConnection, connect_user

MIB = 1024 * 1024


async def seconds_of(work: Awaitable[object]) -> float:
    """How long something takes."""
    began = time.monotonic()
    await work
    return time.monotonic() - began


async def curl(*words: object) -> None:
    """Runs it to its end."""
    command = ["curl", "--silent", "--show-error", "--fail", *map(str, words)]
    process = await asyncio.create_subprocess_exec(*command)
    if await process.wait():
        raise SystemExit("curl failed")


async def curl_pair(user: UserConnection, source: Path, target: Path) -> tuple[float, float]:
    """Seconds to send and to get."""
    slot = await user.request_slot(source.stat().st_size, "piece")
    headers = [word for pair in slot.headers.items() for word in ("-H", ": ".join(pair))]
    sent = await seconds_of(curl(*headers, "-T", source, slot.put_url))
    return sent, await seconds_of(curl("-o", target, slot.get_url))


async def share_pair(
    share: FileShare, source: Path, target: Path, processes: list[psutil.Process]
) -> tuple[float, float, list[str]]:
    """Seconds to send and to get, and in words what the processes took of the processors."""
    marks = [[processor_seconds(each) for each in processes]]
    began = time.monotonic()
    stored = await share.put(source)
    sent = time.monotonic() - began
    marks.append([processor_seconds(each) for each in processes])
    got = await seconds_of(share.get(stored, target))
    marks.append([processor_seconds(each) for each in processes])
    gigabytes = stored.size_bytes / 1e9
    words = [
        ", ".join(f"{(b - a) / gigabytes:.1f}" for a, b in zip(before, after, strict=True))
        for before, after in itertools.pairwise(marks)
    ]
    return sent, got, words


def processor_seconds(process: psutil.Process) -> float:
    """What a process has taken so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


async def measure(directory: Path, megabytes: int, pairs: int, pieces: list[int]) -> None:
    """Prints each pair, and the medians of their ratios."""
    source, target = directory / "source", directory / "target"
    with source.open("wb") as stream:
        for _ in range(megabytes):
            stream.write(os.urandom(1_000_000))
    server = PrivateServer.create(directory / "server")
    process = await asyncio.create_subprocess_exec(*server.command())
    both = [psutil.Process(process.pid), psutil.Process()]
    jid = f"user@{server.users_domain}"
    password = server.add_account(jid)
    ratios: dict[int, list[tuple[float, float]]] = {each: [] for each in pieces}
    try:
        await server.wait_ready()
        async with connect_user(
            jid, password, server.domain, LOOPBACK, server.client_port, tls=False
        ) as user:
            await curl_pair(user, source, target)  # the first finds cold disks and caches
            for _ in range(pairs):
                for each in pieces:
                    bare = await curl_pair(user, source, target)
                    share = FileShare(user.request_slot, piece_bytes=each * MIB)
                    ours = await share_pair(share, source, target, both)
                    ratios[each].append((bare[0] / ours[0], bare[1] / ours[1]))
                    sent, got = (
                        f"curl {megabytes / b:,.0f}, share {megabytes / o:,.0f} MB/s: {b / o:.2f}"
                        for b, o in zip(bare, ours[:2], strict=True)
                    )
                    print(f"pieces of {each} MiB; put: {sent}; get: {got}", flush=True)
                    put_seconds, get_seconds = ours[2]
                    print(f"  seconds for 1 GB of server, share: {put_seconds}; {get_seconds}")
    finally:
        process.terminate()
        await process.wait()
    for each, found in ratios.items():
        puts, gets = (statistics.median(of_one) for of_one in zip(*found, strict=True))
        print(f"pieces of {each} MiB: medians {puts:.2f} of curl for put, {gets:.2f} for get")


def main(megabytes: int = 500, pairs: int = 3, *pieces: int) -> None:
    with tempfile.TemporaryDirectory(prefix="fileshare-", dir=os.environ.get("TMPDIR")) as made:
        sizes = list(pieces) or [PIECE_BYTES // MIB]
        asyncio.run(measure(Path(made), megabytes, pairs, sizes))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
