"""A pool whose server is an ejabberd of two nodes: jobs with files, accounts that change, nodes
that die.

The tests build on each other. Run by verify.yml, which has Ansible's settings in the environment.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).parents[3]
INVENTORY = Path(__file__).parent / "inventory"
LAB = [str(CHECKOUT / "tests/lab/lab"), "--name", "ejabberd", "--subnet", "10.89.103"]
NODES = {"oak": "10.89.103.12", "elm": "10.89.103.20"}
MANAGER = "oak"

pytestmark = pytest.mark.timeout(600)


def run(*command: str, status: int = 0) -> str:
    """Run a command and return what it printed; its words are those of the failure."""
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == status, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def on(host: str, line: str) -> str:
    """Run a line of shell on a host and return what it printed."""
    return run(*LAB, "ssh", host, line)


def playbook(name: str, *words: str, status: int = 0) -> str:
    return run("ansible-playbook", "-i", str(INVENTORY), f"{name}.yml", *words, status=status)


def kestrelctl(*arguments: str) -> Any:
    return json.loads(on(MANAGER, shlex.join(["kestrelctl", *arguments, "-o", "json"])))


def wait_until(condition: Callable[[], object], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, [
            on(host, "journalctl -u kestrel-manager -u kestrel-worker -n 40; true")
            for host in (MANAGER, "w1", "w2")
        ]
        time.sleep(0.5)


def workers() -> set[str]:
    """Names of the workers that could run something."""
    return {
        each["worker"].partition("@")[0]
        for each in kestrelctl("worker", "list")
        if each["state"] in ("idle", "busy")
    }


def nodes(seen_by: str) -> list[str]:
    return sorted(on(seen_by, 'ejabberdctl list_cluster | tr -d "\'"').split())


def all_nodes() -> list[str]:
    return sorted(f"ejabberd@{name}.pool.internal" for name in NODES)


def require_a_job_with_files() -> None:
    """Give twenty tasks a file, and see that each left what it made of it."""
    directory = f"/tmp/job-{time.monotonic_ns()}"
    task = "tr a-z A-Z <given >made; echo {}"
    submit = ["kestrelctl", "submit", "-o", "quiet", "--wait", "--array", "1-20", "--input",
              "given", "--keep", "made", "--fetch", "come", "--", "sh", "-c", task]  # fmt: skip
    on(MANAGER, f"mkdir {directory}; cd {directory}; echo words >given; {shlex.join(submit)}")
    made = on(MANAGER, f"find {directory}/come -type f -name made -exec cat {{}} +").split()
    assert made == ["WORDS"] * 20


def registered(host: str) -> list[list[str]]:
    """The accounts at a host of the pool, as each node has them."""
    asked = f"ejabberdctl registered_users {host}.pool.internal"
    return [sorted(on(node, asked).split()) for node in NODES]


def test_a_job_with_files_runs() -> None:
    assert nodes("oak") == nodes("elm") == all_nodes()
    wait_until(lambda: workers() == {"w1", "w2"})
    require_a_job_with_files()


def test_workers_are_spread_over_the_nodes() -> None:
    for worker, node in (("w1", "oak"), ("w2", "elm")):
        peers = on(worker, "ss -Htn state established '( dport = :5222 )'").split()
        assert f"{NODES[node]}:5222" in peers


def test_the_service_is_closed_and_misses_nothing() -> None:
    refused = "Operation not permitted|Read-only file system|Permission denied|not owner|eacces"
    for node in NODES:
        on(node, "systemd-analyze security --no-pager --threshold=20 ejabberd")
        on(node, f"! journalctl --unit ejabberd --output cat | grep -E {shlex.quote(refused)}")
        on(node, f"! grep -rE {shlex.quote(refused)} /var/log/ejabberd")


def test_nobody_else_can_read_a_secret() -> None:
    looked = "find /etc/ejabberd /var/lib/ejabberd -type f -readable"
    found = on("elm", f"runuser --user=nobody -- {looked} 2>/dev/null || true").split()
    assert found == []


def test_nodes_talk_to_each_other_over_tls_and_to_nobody_else() -> None:
    asked = f"openssl s_client -brief -connect {NODES['oak']}:4370 </dev/null 2>&1; true"
    said = on("w1", asked)
    assert "SSL alert" in said, "it has no certificate of the pool"
    sockets = [line.split()[3] for line in on("oak", "ss -Htln").splitlines()]
    assert {each.rpartition(":")[2] for each in sockets} - {"22", "9437"} == {
        "5222", "5348", "5443", "4370", "4369",
    }  # fmt: skip


def test_passwords_are_made_anew_and_the_pool_goes_on() -> None:
    before = (INVENTORY / "group_vars/all/vault.yml").read_text()
    playbook("playbooks/rotate_credentials", "-e", "rotate=workers,users,component")
    assert (INVENTORY / "group_vars/all/vault.yml").read_text() != before
    wait_until(lambda: workers() == {"w1", "w2"})
    require_a_job_with_files()


def test_who_is_taken_out_of_the_inventory_is_closed() -> None:
    without = json.dumps({"kestrel_users": [{"name": "ada", "admin": True}]})
    said = playbook("playbooks/server", "-e", without, status=2)
    assert "bob@users.pool.internal. No account was changed." in " ".join(said.split())
    assert registered("users") == [["ada", "bob"]] * 2
    playbook("playbooks/server", "-e", without, "-e", "kestrel_close_users=true")
    assert registered("users") == [["ada"]] * 2


def test_what_it_cannot_carry_is_refused_before_anything_is_touched() -> None:
    said = playbook("site", "-e", "kestrel_flock_join=pool.internal", status=2)
    assert "kestrel_flock_join asks for a flock, which a pool with an ejabberd does" in said
    assert "nothing has been touched" in said


def test_a_node_that_is_killed_loses_nothing() -> None:
    """The node that the manager and a worker are connected to."""
    submit = ["kestrelctl", "submit", "-o", "quiet", "--array", "1-4", "--", "sleep", "15"]
    job = on(MANAGER, shlex.join(submit)).split()[0]
    wait_until(lambda: kestrelctl("job", "list", job)[0]["running"] == 4)
    on("oak", "systemctl kill --signal=KILL ejabberd")
    on(MANAGER, f"kestrelctl job wait {job}")
    assert [each["losses"] for each in kestrelctl("job", "tasks", job)] == [0] * 4
    require_a_job_with_files()
    wait_until(lambda: nodes("elm") == all_nodes())


def test_while_a_machine_is_gone_the_other_node_carries_the_pool() -> None:
    run(*LAB, "kill", "elm")
    wait_until(lambda: workers() == {"w1", "w2"})
    require_a_job_with_files()
    assert nodes("oak") == ["ejabberd@oak.pool.internal"]


def test_a_machine_that_comes_back_is_a_node_again() -> None:
    run(*LAB, "start", "elm")
    # A container that starts has its first /etc/hosts.
    on("elm", f"printf '%s xmpp.pool.internal\\n' {' '.join(NODES.values())} >>/etc/hosts")
    wait_until(lambda: nodes("oak") == all_nodes())
    assert registered("workers") == [["w1", "w2"]] * 2
    require_a_job_with_files()


def test_a_worker_is_taken_out_with_its_account() -> None:
    playbook("playbooks/remove_worker", "--limit", "w2")
    assert registered("workers") == [["w1"]] * 2


def test_a_pool_is_removed_whole() -> None:
    playbook("playbooks/reset", "-e", "confirm=yes")
    for node in NODES:
        assert on(node, "ls -d /etc/ejabberd /var/lib/ejabberd 2>/dev/null || true") == ""
