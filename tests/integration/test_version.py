"""Whoever says the version says the same: kestrelctl, the pool, its metrics, and what is built."""

from __future__ import annotations

import email
import re
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path

import pytest

from kestrelctl.checkout import described_version
from kestrelctl.local.pool_state import PoolState
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.xmpp.user import UserConnection

CHECKOUT = Path(__file__).parents[2]


def says(*command: object, path: str = str(CHECKOUT)) -> str:
    done = subprocess.run(
        list(map(str, command)),
        env={"PYTHONPATH": path},
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def measured(url: str, metric: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        page = answer.read().decode()
    (version,) = re.findall(rf'^{metric}{{.*version="([^"]+)".*}} 1.0$', page, re.MULTILINE)
    return str(version)


@pytest.fixture(scope="module")
def wheel() -> Path:
    done = subprocess.run([CHECKOUT / "kestrel", "wheel"], capture_output=True, cwd="/", check=True)
    return Path(done.stdout.decode().removesuffix("\n"))


async def test_the_version_is_the_same_wherever_it_is_said(
    local_pool: PoolState, user: UserConnection, wheel: Path
) -> None:
    pool = await user.ask(rq.PoolStatus())
    workers = await user.ask(rq.ListWorkers())
    assert isinstance(pool, an.PoolSummary)
    assert isinstance(workers, an.Workers)
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        built = email.message_from_bytes(archive.read(metadata))["Version"]
    run = (sys.executable, "-m", "kestrelctl", "--version")
    said = {
        "kestrelctl --version": says(*run),
        "pool status": f"kestrelctl {pool.version}",
        "worker list": f"kestrelctl {workers.workers[0].version}",
        "kestrel_build_info": f"kestrelctl {measured(local_pool.metrics, 'kestrel_build_info')}",
        "kestrel_worker_build_info": "kestrelctl "
        + measured(local_pool.worker_metrics[0], "kestrel_worker_build_info"),
        "the wheel": f"kestrelctl {built}",
        "kestrelctl --version of the wheel": says(*run, path=str(wheel)),
        "the name of the wheel": f"kestrelctl {wheel.name.split('-')[1]}",
    }
    assert said == dict.fromkeys(said, f"kestrelctl {described_version(CHECKOUT)}")
