"""A pool on a fresh machine that has only the wheel: on each Debian, with pipx and with uv."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
LAB = [CHECKOUT / "tests/lab/lab", "--name", "install", "--subnet", "10.89.55"]
PIPX = "apt-get -qq install --no-install-recommends pipx"
UV = """\
apt-get -qq install --no-install-recommends python3-venv
python3 -m venv /opt/uv
/opt/uv/bin/pip -q install uv"""
UV_INSTALL = "SSL_CERT_FILE=/opt/host-ca.crt /opt/uv/bin/uv tool install"
#: Debian's suite, the host, what root types to have a tool, and what a user types to install.
MACHINES = [
    ("bookworm", "uv12:30", UV, UV_INSTALL),
    ("trixie", "pipx13:31", PIPX, "pipx install"),
]
STORY = """\
PS4='+ $SECONDS s: '
set -ex
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
{{
{tool}
}} >/dev/null
useradd --create-home --shell /bin/bash ada
as_ada() {{ su - ada -c "PATH=\\$HOME/.local/bin:\\$PATH; $1"; }}
as_ada '{install} /tmp/{wheel}' >/dev/null
as_ada 'kestrelctl --version'
as_ada 'kestrelctl up 2>&1' || echo "status $?"
apt-get -qq install --no-install-recommends prosody >/dev/null
systemctl --quiet disable --now prosody
as_ada 'kestrelctl up'
as_ada 'kestrelctl submit --array 1-10 --wait -- sh -c "echo \\$((42 * {{}}))"'
as_ada 'kestrelctl job logs last 7'
as_ada 'kestrelctl down'
"""
TOLD = """\
kestrelctl {version}
error: Prosody, the XMPP server of a local pool, is not installed
hint: as root: apt-get install prosody .*
status 9
pool default is up: 1 worker
job 1 done: 10 tasks in .*
294
pool default is down
"""

pytestmark = [pytest.mark.lab, pytest.mark.timeout(420)]


def lab(*words: str, stdin: bytes = b"") -> str:
    """What a command of the lab prints. Its standard error is shown if a test fails."""
    done = subprocess.run([*LAB, *words], input=stdin, stdout=subprocess.PIPE, timeout=240)
    return done.stdout.decode()


def story(host: str, tool: str, install: str, wheel: Path) -> str:
    """What the machine said."""
    lab("ssh", host, f"cat >'/tmp/{wheel.name}'", stdin=wheel.read_bytes())
    typed = STORY.format(tool=tool, install=install, wheel=wheel.name)
    return lab("ssh", host, "timeout 180 bash -s", stdin=typed.encode())


@pytest.fixture(scope="module")
def wheel() -> Path:
    built = subprocess.run([CHECKOUT / "kestrel", "wheel"], stdout=subprocess.PIPE, check=True)
    return Path(built.stdout.decode().removesuffix("\n"))


@pytest.fixture(scope="module")
def stories(wheel: Path) -> Iterator[dict[str, Future[str]]]:
    """What each machine said, by its suite; both go on at once."""
    lab("down")
    for suite, host, *_ in MACHINES:
        lab("up", "--suite", suite, host)
    with ThreadPoolExecutor() as threads:
        yield {
            suite: threads.submit(story, host.partition(":")[0], tool, install, wheel)
            for suite, host, tool, install in MACHINES
        }
    lab("down")


@pytest.mark.parametrize("suite", [suite for suite, *_ in MACHINES])
def test_the_wheel_alone_makes_a_pool(
    stories: dict[str, Future[str]], wheel: Path, suite: str
) -> None:
    told = stories[suite].result()
    wanted = TOLD.format(version=re.escape(wheel.name.split("-")[1]))
    assert re.fullmatch(wanted, told), told
