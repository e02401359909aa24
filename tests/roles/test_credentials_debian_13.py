"""How the units of manager and worker get their secrets under Debian 13's systemd."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_units import unit

CHECKOUT = Path(__file__).parents[2]
LAB = [str(CHECKOUT / "tests/lab/lab"), "--name", "secrets", "--subnet", "10.89.56"]
#: Runs as the unit's user, with all that the unit shuts; what it says is on the host's journal.
LOOK = {
    "manager": 'cat "$CREDENTIALS_DIRECTORY/component.secret"; cat /etc/kestrel/component.secret',
    "worker": "read -r line; echo $line; cat /proc/self/fd/0; cat /etc/kestrel/worker.credentials",
}
USERS = {"manager": "kestrel", "worker": "kestrel-worker"}
SECRETS = {"manager": "component.secret", "worker": "worker.credentials"}
PREPARE = """\
set -e
useradd --system {user}
install -d -m 0755 /etc/kestrel
(umask 077; echo the secret of {role} >/etc/kestrel/{secret})
cat >/etc/systemd/system/kestrel-{role}.service
systemctl daemon-reload
systemctl start kestrel-{role}.service
journalctl --sync
journalctl --output cat --unit kestrel-{role}.service
"""

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]


def lab(*words: str, stdin: str = "") -> str:
    """What a command of the lab prints. Its standard error is shown if a test fails."""
    done = subprocess.run(
        [*LAB, *words], input=stdin, stdout=subprocess.PIPE, text=True, timeout=200
    )
    return done.stdout


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    lab("down")
    lab("up", "--suite", "trixie", "debian13:32")
    yield "debian13"
    lab("down")


@pytest.mark.parametrize("role", ["manager", "worker"])
def test_a_unit_has_its_secret_and_cannot_open_the_file(host: str, role: str) -> None:
    text = re.sub("(?m)^ExecStart=.*", f"ExecStart=sh -c '{LOOK[role]}; true'", unit(role))
    text = re.sub("(?m)^(Type|WatchdogSec)=.*\n", "", text)
    text = text.replace("[Service]\n", "[Service]\nType=oneshot\n").replace("$", "$$")
    text = re.sub("(?m)^Restart=.*\n", "", text)
    prepare = PREPARE.format(role=role, user=USERS[role], secret=SECRETS[role])
    said = lab("ssh", host, prepare, stdin=text)
    assert said.count(f"the secret of {role}") == 1, said
    assert f"/etc/kestrel/{SECRETS[role]}: Permission denied" in said, said
    assert "systemd 257" in lab("ssh", host, "systemctl --version")
