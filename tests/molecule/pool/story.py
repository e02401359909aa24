"""What a pool lives through, on the hosts of this scenario. The tests build on each other.

Run by verify.yml, which has Ansible's settings in the environment.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).parents[3]
sys.path.insert(0, str(CHECKOUT / "tests/dashboards"))
import dashboardkit  # noqa: E402

INVENTORY = Path(__file__).parent / "inventory"
MPI_PAGE = CHECKOUT / "docs/spanning.md"
MPI_PROGRAM = (CHECKOUT / "tests/integration/allreduce.py").read_text()
WHEELHOUSE = CHECKOUT / "tests/lab/.state/wheelhouse"
LAB = [str(CHECKOUT / "tests/lab/lab"), "--name", "pool", "--subnet", "10.89.96"]
NAT1 = "10.89.96.139"

#: Asks the Prometheus of the host that it runs on, which listens there only.
ASK = """
import json, time, urllib.parse, urllib.request
def ask(queries):
    now, found = time.time(), []
    for text, instant in json.loads(queries):
        curve = {"start": now - 300, "end": now, "step": 15}
        words = {"query": text, **({"time": now} if instant else curve)}
        path = "query?" if instant else "query_range?"
        url = "http://127.0.0.1:9090/api/v1/" + path + urllib.parse.urlencode(words)
        with urllib.request.urlopen(url) as answer:
            series = json.load(answer)["data"]["result"]
        found.append([each.get("values", [each.get("value")]) for each in series])
    print(json.dumps(found))
"""

#: Sets the version of a store's schema, and tells the one that it had.
SCHEMA = """
import sqlite3, sys
store = sqlite3.connect("/var/lib/kestrel/manager/kestrel.db")
print(store.execute("PRAGMA user_version").fetchone()[0])
store.execute(f"PRAGMA user_version = {sys.argv[1]}")
"""

#: A thousand tasks in three stages, with a branch that fails as long as nobody has calibrated.
CALIBRATED = "/etc/calibrated"
FLOW = f"""
input = "table"
cpus = 0.5

[job.measure]
command = ["sh", "-c", "sleep 0.2; grep '^{{n}} ' table >measured"]
array = "1-450"
keep = "measured"

[job.refine]
command = ["sh", "-c", "read n square <measure/{{n}}/measured; echo $n $(( square - n )) >refined"]
input = "job:measure"
after-each = "measure"
array = "1-450"
keep = "refined"
stage.setup = {{ command = "test -d measure", tries = 2 }}

[job.far]
command = ["sh", "-c", "cp measure/{{n}}/measured measured"]
array = "1-97"
input = "job:measure"
keep = "measured"
requires = "NAT"

[job.sum]
command = ["sh", "-c", "cat refine/*/refined | sort -n >sum"]
input = "job:refine"
keep = "sum"

[job.check]
command = ["test", "-e", "{CALIBRATED}"]
after = "measure"

[job.publish]
command = ["echo", "published"]
after = ["check", "sum"]
"""

pytestmark = pytest.mark.timeout(600)


def run(*command: str, status: int = 0, **options: Any) -> str:
    """Run a command and return what it printed; its words are those of the failure."""
    done = subprocess.run(
        command, cwd=CHECKOUT, capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == status, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def lab(*arguments: str, **options: Any) -> str:
    return run(*LAB, *arguments, **options)


def playbook(name: str, limit: str = "all", **variables: str) -> str:
    extra = [word for key, value in variables.items() for word in ("-e", f"{key}={value}")]
    words = (f"playbooks/{name}.yml", "--limit", limit, *extra)
    return run("ansible-playbook", "-i", str(INVENTORY), *words)


def site(**variables: Any) -> str:
    """Play the whole pool, with variables that an inventory would have."""
    command = ("ansible-playbook", "-i", str(INVENTORY), "site.yml", "-e", json.dumps(variables))
    return run(*command)


def wait_until(condition: Callable[[], object], timeout_seconds: float = 60) -> None:
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.5)


class Client:
    """kestrelctl on the controller, with the context that playbooks/client.yml makes."""

    def __init__(self, directory: Path, user: str = "ada") -> None:
        kept = str(directory / "kestrel")
        playbook("client", client_directory=kept, client_context="pool", client_user=user)
        self.environment = {**os.environ, "XDG_CONFIG_HOME": str(directory)}
        self.command = [sys.executable, "-m", "kestrelctl", "--pool", "pool"]

    def __call__(self, *arguments: str, status: int = 0) -> str:
        return run(*self.command, *arguments, env=self.environment, status=status)

    def submit(self, array: int, *command: str, options: tuple[str, ...] = ()) -> str:
        """Submit a job of many tasks and return its id."""
        tasks = ("--array", f"1-{array}", *options, "--", *command)
        return self("submit", "-o", "quiet", *tasks).split()[0]

    def jobs(self, job_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return id -> job, in the order of submission."""
        listed = json.loads(self("job", "list", ",".join(job_ids), "-o", "json"))
        return {str(job["job_id"]): job for job in sorted(listed, key=lambda job: job["job_id"])}

    def tasks(self, job_id: str) -> list[dict[str, Any]]:
        return list(json.loads(self("job", "tasks", job_id, "--limit", "0", "-o", "json")))

    def workers(self) -> dict[str, dict[str, Any]]:
        """Return name -> worker."""
        listed = json.loads(self("worker", "list", "-o", "json"))
        return {worker["worker"].partition("@")[0]: worker for worker in listed}

    def state(self, worker: str) -> str:
        return str(self.workers().get(worker, {}).get("state", "not listed"))

    def require_all_done(self, job_id: str, count: int) -> list[dict[str, Any]]:
        """Wait for a job, and require one result of each task: that it was done."""
        self("job", "wait", job_id, "--timeout", "5m")
        tasks = self.tasks(job_id)
        assert [task["task_id"] for task in tasks] == list(range(1, count + 1))
        assert {task["state"] for task in tasks} == {"done"}
        written = self("job", "logs", job_id, "--all").splitlines()
        ids = sorted(int(line) for line in written if line.isdecimal())  # the rest are headings
        assert ids == list(range(1, count + 1))
        return tasks


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Client:
    return Client(tmp_path_factory.mktemp("client"))


def echo_after(seconds: float) -> tuple[str, ...]:
    return ("sh", "-c", f"sleep {seconds}; echo {{}}")


def test_a_thousand_tasks(client: Client) -> None:
    tasks = client.require_all_done(client.submit(1000, *echo_after(0)), 1000)
    assert {task["worker"].partition("@")[0] for task in tasks} == {"w1", "w2"}


#: A thousand of each from a program: calls of a function, and results of one job.
FROM_PYTHON = """
from kestrelctl.client.blocking import Client
from kestrelctl.client.executor import KestrelExecutor

def square(number):
    return number * number

with KestrelExecutor(pool="pool") as executor:
    assert list(executor.map(square, range(1000))) == [n * n for n in range(1000)]
with Client("pool") as pool:
    job = pool.submit(["sh", "-c", "exit $(({n} % 2))"], array="1-1000")
    results = {task.task_id: task.exit_code for task in job.results()}
assert results == {n: n % 2 for n in range(1, 1001)}
"""


def test_python_and_map_take_a_thousand_too(client: Client) -> None:
    run(sys.executable, "-c", FROM_PYTHON, env=client.environment)
    mapped = client("map", "--keep-order", "echo", "{}", ":::", *map(str, range(1000)))
    assert mapped.split() == [str(n) for n in range(1000)]


def test_a_long_output_comes_whole_from_elsewhere(client: Client) -> None:
    job_id = client.submit(1, "seq", "1000000")
    client("job", "wait", job_id, "--timeout", "1m")
    assert client("job", "logs", job_id) == "".join(f"{n}\n" for n in range(1, 1_000_001))


def test_who_is_taken_out_of_the_inventory_is_closed(client: Client, tmp_path: Path) -> None:
    bob = Client(tmp_path, "bob")
    job_id = bob.submit(1, "sleep", "600")
    wait_until(lambda: bob.jobs([job_id])[job_id]["running"] == 1)
    inventory = ("ansible-playbook", "-i", str(INVENTORY))
    without = {"kestrel_users": [{"name": "ada", "admin": True}]}
    said = run(*inventory, "playbooks/server.yml", "-e", json.dumps(without), status=2)
    assert "bob@users.pool.internal. No account was changed." in " ".join(said.split())
    assert bob.jobs([job_id])[job_id]["running"] == 1
    with subprocess.Popen([*bob.command, "job", "wait", job_id], env=bob.environment) as waits:
        site(**without, kestrel_close_users=True)
        assert waits.wait(timeout=60) != 0
    bob("job", "list", status=4)
    assert client.jobs([job_id])[job_id]["state"] == "cancelled"
    vault = (INVENTORY / "group_vars/all/vault.yml").read_text()
    assert "ada:" in vault
    assert "bob:" not in vault
    client.require_all_done(client.submit(10, *echo_after(0)), 10)


def service_pids() -> list[str]:
    """The processes of manager and workers."""
    asked = {"mgr": "kestrel-manager", "w1": "kestrel-worker", "w2": "kestrel-worker"}
    return [
        lab("ssh", host, f"systemctl show --value --property=MainPID {unit}").strip()
        for host, unit in asked.items()
    ]


def copied_checkout(directory: Path) -> Path:
    """A checkout without its repository, which so names no commit."""
    directory.mkdir()
    shutil.copytree(CHECKOUT / "kestrelctl", directory / "kestrelctl")
    for file in (
        "LICENSE",
        "README.md",
        "hatch_build.py",
        "pyproject.toml",
        *(f.name for f in CHECKOUT.glob("*.lock")),
    ):
        shutil.copy(CHECKOUT / file, directory)
    return directory


def test_another_commit_with_the_same_program_starts_nobody_anew(
    client: Client, tmp_path: Path
) -> None:
    before, running = versions(client), service_pids()
    same = copied_checkout(tmp_path / "same")
    (same / "README.md").write_text("Another one.\n")
    playbook("upgrade", kestrel_package_source=str(same))
    assert (versions(client), service_pids()) == (before, running)


def test_a_changed_tag_kills_nothing(client: Client) -> None:
    job_id = client.submit(8, *echo_after(60))
    wait_until(lambda: client.jobs([job_id])[job_id]["running"] == 8)
    site(worker_tags=["FRESH"])
    tasks = client.require_all_done(job_id, 8)
    assert sum(task["losses"] for task in tasks) == 0
    assert all("FRESH" in client.workers()[name]["tags"] for name in ("w1", "w2"))
    site()
    assert not any("FRESH" in client.workers()[name]["tags"] for name in ("w1", "w2"))


def mpi(client: Client, *words: str) -> str:
    """Submit the script of the page, for two processes on each of two workers."""
    [script] = re.findall(r"^```sh\n(.*?)^```$", MPI_PAGE.read_text(), re.MULTILINE | re.DOTALL)
    key = f"MPI_KEY={secrets.token_hex(16)}"
    spanning = ("--span", "2", "--cpus", "2", "--time-limit", "1m", "--env", key)
    command = ("sh", "-c", script, "mpi.sh", *words)
    return client("submit", "-o", "quiet", *spanning, "--", *command).split()[0]


def test_an_mpi_program_runs_on_two_machines(client: Client) -> None:
    for worker in ("w1", "w2"):
        install = "apt-get -qq install --no-install-recommends openmpi-bin"
        lab("ssh", worker, f"apt-get -qq update && {install}")
    job_id = mpi(client, "python3", "-c", MPI_PROGRAM)
    client("job", "wait", job_id, "--timeout", "90s")
    tasks = client.tasks(job_id)
    assert [task["state"] for task in tasks] == ["done", "done"]
    first, second = (task["worker"].partition("@")[0] for task in tasks)
    assert {first, second} == {"w1", "w2"}
    assert sorted(client("job", "logs", job_id, "0").splitlines()) == [
        f"process {rank} on {host}: 1111"
        for rank, host in enumerate([first, first, second, second])
    ]


def test_a_member_that_mpirun_does_not_need_ends(client: Client) -> None:
    job_id = mpi(client, "-n", "1", "hostname")
    client("job", "wait", job_id, "--timeout", "90s")
    assert client("job", "logs", job_id, "0") in ("w1\n", "w2\n")


def test_what_mpirun_has_started_elsewhere_ends_with_the_job(client: Client) -> None:
    def running() -> list[str]:
        return [
            line
            for worker in ("w1", "w2")
            for line in lab("ssh", worker, "pgrep -fx 'sleep 4242' || true").split()
        ]

    job_id = mpi(client, "sleep", "4242")
    wait_until(lambda: len(running()) == 4)
    client("job", "cancel", job_id)
    client("job", "wait", job_id, "--timeout", "30s", status=3)
    assert running() == []


def test_a_machine_behind_nat_joins(client: Client) -> None:
    lab("up", "nat1:nat")
    with pytest.raises(OSError, match="timed out"):
        socket.create_connection((NAT1, 22), timeout=2)
    install = (
        "apt-get -qq update && apt-get -qq install --no-install-recommends python3-venv"
        " && mkdir wheels && tar -C wheels -xf - && python3 -m venv /opt/kestrel/venv"
        " && /opt/kestrel/venv/bin/pip install -q --no-index --find-links wheels kestrelctl"
        " && ln -s /opt/kestrel/venv/bin/kestrelctl /usr/local/bin/"
    )
    pack = ["tar", "-c", "-C", str(WHEELHOUSE), ".", "-C", str(CHECKOUT / "dist"), newest_wheel()]
    with subprocess.Popen(pack, stdout=subprocess.PIPE) as packed:
        lab("exec", "nat1", "sh", "-c", install, stdin=packed.stdout)
    token = lab("ssh", "mgr", "kestrelctl worker enroll --name nat1 -o quiet")
    lab(
        "exec",
        "nat1",
        "kestrelctl",
        "worker",
        "join",
        "-",
        "--service",
        "--tags",
        "NAT",
        input=token,
    )
    wait_until(lambda: client.state("nat1") == "idle")
    job_id = client.submit(100, *echo_after(0), options=("--requires", "NAT"))
    tasks = client.require_all_done(job_id, 100)
    assert {task["worker"].partition("@")[0] for task in tasks} == {"nat1"}


def test_a_workflow_with_files_while_worker_manager_and_server_are_killed(
    client: Client, tmp_path: Path
) -> None:
    (tmp_path / "table").write_text("".join(f"{n} {n * n}\n" for n in range(1, 451)))
    (tmp_path / "flow.toml").write_text(FLOW)
    words = ("submit", "-o", "quiet", str(tmp_path / "flow.toml"))
    first, last = map(int, client(*words).strip().split("-"))
    all_of_it = f"{first}-{last}"
    names = {job["name"]: job_id for job_id, job in client.jobs([all_of_it]).items()}

    def done(name: str) -> int:
        return int(client.jobs([names[name]])[names[name]]["done"])

    wait_until(lambda: done("measure") > 20)
    lab("ssh", "w1", "systemctl kill --signal=KILL kestrel-worker")
    wait_until(lambda: done("measure") > 120)
    lab("ssh", "mgr", "systemctl kill --signal=KILL kestrel-manager")
    wait_until(lambda: done("refine") > 50)
    lab("ssh", "srv", "systemctl kill --signal=KILL prosody")
    client("job", "wait", all_of_it, "--timeout", "3m", status=3)

    states = {job["name"]: job["state"] for job in client.jobs([all_of_it]).values()}
    bad = {"check": "failed", "publish": "cancelled"}
    assert states == dict.fromkeys(names, "done") | bad
    [published] = client.tasks(names["publish"])
    assert (published["state"], published["worker"]) == ("cancelled", "")

    for host in ("w1", "w2"):
        lab("ssh", host, f"touch {CALIBRATED}")
    lab("exec", "nat1", "touch", CALIBRATED)
    client("job", "retry", all_of_it, "--failed")
    client("job", "wait", all_of_it, "--timeout", "3m")
    ended = client.jobs([all_of_it]).values()
    assert {job["state"] for job in ended} == {"done"}
    assert sum(job["done"] for job in ended) == 1000
    assert client("job", "logs", names["publish"]) == "published\n"
    assert {task["worker"].partition("@")[0] for task in client.tasks(names["far"])} == {"nat1"}

    def fetched(name: str) -> dict[int, str]:
        """What each task of a job left, by its number; each leaves one file."""
        client("job", "fetch", names[name], "--to", str(tmp_path / name))
        files = [each for each in (tmp_path / name).glob("[0-9]*/**/*") if each.is_file()]
        assert len({each.parent for each in files}) == len(files)
        return {int(each.parent.name): each.read_text() for each in files}

    assert fetched("measure") == {n: f"{n} {n * n}\n" for n in range(1, 451)}
    assert fetched("refine") == {n: f"{n} {n * n - n}\n" for n in range(1, 451)}
    assert fetched("far") == {n: f"{n} {n * n}\n" for n in range(1, 98)}
    assert fetched("sum") == {0: "".join(f"{n} {n * n - n}\n" for n in range(1, 451))}


def test_a_user_joins_with_a_service_of_his_own(client: Client) -> None:
    lab("exec", "nat1", "useradd", "--create-home", "carol")
    token = lab("ssh", "mgr", "kestrelctl worker enroll --name carol -o quiet")
    join = ("exec", "nat1", "sudo", "-iu", "carol", "kestrelctl", "worker", "join", "-")
    lab("exec", "nat1", "loginctl", "enable-linger", "carol")
    # The machine's own worker has the port that is the default.
    lab(*join, "--service", "--metrics", "127.0.0.1:9439", "--tags", "CAROL", input=token)
    wait_until(lambda: client.state("carol") == "idle")
    lab("kill", "nat1")
    wait_until(lambda: client.state("carol") == "offline", timeout_seconds=30)
    lab("start", "nat1")
    wait_until(lambda: client.state("carol") == "idle")
    asked = client.submit(1, "id", "-un", options=("--requires", "CAROL", "--wait"))
    assert client("job", "logs", asked, "1") == "carol\n"
    lab("ssh", "mgr", "kestrelctl worker revoke carol")
    assert client.state("carol") == "not listed"


def newest_wheel() -> str:
    """The wheel that converging has built, in dist."""
    wheels = (CHECKOUT / "dist").glob("*.whl")
    return max(wheels, key=lambda wheel: wheel.stat().st_mtime).name


def test_a_machine_dies_and_comes_back(client: Client) -> None:
    job_id = client.submit(400, *echo_after(0.5))
    wait_until(lambda: client.workers()["w1"]["running"] > 0)
    lab("kill", "w1")
    wait_until(lambda: client.state("w1") == "offline", timeout_seconds=30)
    lab("start", "w1")
    wait_until(lambda: client.state("w1") in ("idle", "busy"))
    client.require_all_done(job_id, 400)
    # A loss counts against a task only if it had surely begun; that it happened is told anyway.
    assert "lost: worker w1 went away" in client("job", "story", job_id, "--limit", "5000")


#: A pool with one manager, in no flock, and without classes of environments has nothing to show of
#: these.
OF_OTHER_POOLS = (
    "kestrel_managers_standing_by",
    "kestrel_flock_round_trip_",
    "kestrel_flock_loan_",
    "kestrel_flock_hand_out_",
    "kestrel_environment",
)


def test_every_panel_shows_what_the_pool_does(client: Client) -> None:
    lab("ssh", "mgr", "kestrelctl pool asset set licences 3")
    work = ("sh", "-c", "sleep 0.2; exit $(( {} % 80 == 0 ))")
    client("job", "wait", client.submit(200, *work, options=("--max-failures", "2")), status=3)
    # Prometheus looks each 15 s here. Some panels show only what there is at the moment, so that
    # there is work for as long as it takes.
    running = [client.submit(200, *echo_after(1))]
    asked = [
        (panel, dashboardkit.substituted(panel.text, __rate_interval="2m", __range="5m"))
        for panel in dashboardkit.expressions()
        if not any(name in panel.text for name in OF_OTHER_POOLS)
    ]

    def silent() -> list[str]:
        queries = json.dumps([[text, panel.instant] for panel, text in asked])
        answers = json.loads(lab("ssh", "mon", "python3", "-", input=f"{ASK}\nask({queries!r})"))
        return [
            str(panel)
            for (panel, _), series in zip(asked, answers, strict=True)
            if not any(float(value) == float(value) for each in series for _, value in each)
        ]

    deadline = time.monotonic() + 120
    while found := silent():
        assert time.monotonic() < deadline, "nothing to show:\n" + "\n".join(found)
        time.sleep(5)
        running.append(client.submit(200, *echo_after(1)))
    client("job", "cancel", ",".join(map(str, running)))


def test_an_upgrade_under_load(client: Client, tmp_path: Path) -> None:
    newer = copied_checkout(tmp_path.parent / "newer")
    (newer / "kestrelctl/__init__.py").write_text('"""Newer."""\n\n__version__ = "99.1"\n')
    before = versions(client)
    assert len(set(before.values())) == 1
    with load(client):
        playbook("upgrade", kestrel_package_source=str(newer), kestrel_package_keep="3")
    assert set(versions(client).values()) == {"99.1"}
    (tmp_path.parent / "before").write_text(before["manager"])


def versions(client: Client) -> dict[str, str]:
    """Return who -> the version that runs there."""
    workers = {name: str(client.workers()[name]["version"]) for name in ("w1", "w2")}
    return {**workers, "manager": json.loads(client("pool", "status", "-o", "json"))["version"]}


@contextmanager
def load(client: Client) -> Iterator[None]:
    """Jobs for longer than what happens meanwhile lasts: no task is lost, and none ends wrong.

    On a busy machine an upgrade takes eight minutes.
    """
    jobs = [client.submit(250, *echo_after(0.5)) for _ in range(45)]
    yield
    active = [job_id for job_id, job in client.jobs(jobs).items() if job["state"] == "active"]
    assert active, "the jobs were too short to tell anything"
    not_begun = active[2:]
    if not_begun:  # the rest is cancelled
        client("job", "cancel", ",".join(not_begun))
    for job_id in (job_id for job_id in jobs if job_id not in not_begun):
        tasks = client.require_all_done(job_id, 250)
        assert sum(task["losses"] for task in tasks) == 0


def refused(name: str, *variables: str) -> str:
    """Play a playbook that must not do anything, and return what it says."""
    extra = [word for each in variables for word in ("-e", each)]
    command = ["ansible-playbook", "-i", str(INVENTORY), f"playbooks/{name}.yml", *extra]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "changed=0" in done.stdout
    assert not re.search(r"changed=[1-9]", done.stdout)
    return " ".join(done.stdout.split())


def test_no_way_back_to_who_cannot_read_the_store(client: Client) -> None:
    schema = lab("ssh", "mgr", "python3", "-", "99", input=SCHEMA).strip()
    # The manager that runs has looked at its start only; what copies must be able to read it, too.
    patched = "/opt/kestrel/venv/lib/python3*/site-packages/kestrelctl/store/backup.py"
    lab("ssh", "mgr", f"sed -i.orig 's/version > len(MIGRATIONS)/version > 99/' {patched}")
    try:
        said = refused("rollback")
    finally:
        lab("ssh", "mgr", f"for f in {patched}; do mv $f.orig $f; done")
        lab("ssh", "mgr", "python3", "-", schema, input=SCHEMA)
    assert "cannot read the store as it is now; nothing was changed" in said
    assert "made by a newer Kestrel" in said
    assert set(versions(client).values()) == {"99.1"}


def test_a_rollback_under_load(client: Client, tmp_path: Path) -> None:
    with load(client):
        playbook("rollback")
    before = (tmp_path.parent / "before").read_text()
    assert set(versions(client).values()) == {before}
    assert "has no release from before" in refused("rollback")
    assert set(versions(client).values()) == {before}


def test_new_credentials_after_a_rollback_keep_the_release_that_runs(client: Client) -> None:
    before = versions(client)
    source = str(CHECKOUT.parent / "nowhere")  # it is not even looked at
    with load(client):
        playbook("rotate_credentials", rotate="workers,component", kestrel_package_source=source)
    assert versions(client) == before


def test_a_way_back_from_a_manager_that_does_not_start(client: Client, tmp_path: Path) -> None:
    before = (tmp_path.parent / "before").read_text()
    source = tmp_path.parent / "newer"
    playbook("upgrade", kestrel_package_source=str(source), upgrade_batch="100%")
    broken = "/opt/kestrel/99.1-*/venv/lib/python3*/site-packages/kestrelctl/manager/service.py"
    lab("ssh", "mgr", f"echo 'raise SystemExit(1)' >>$(echo {broken})")
    lab("ssh", "mgr", "systemctl restart --no-block kestrel-manager")
    playbook("rollback", upgrade_batch="100%")
    assert set(versions(client).values()) == {before}


def test_a_drain_given_as_text(client: Client) -> None:
    playbook("drain", worker_drain_seconds="30", limit="w1")
    assert client.state("w1") == "draining"
    playbook("drain", resume="true", limit="w1")
    assert client.state("w1") in ("idle", "busy")


def test_a_revoked_machine_stays_out(client: Client) -> None:
    lab("ssh", "mgr", "kestrelctl worker revoke nat1")
    assert client.state("nat1") == "not listed"
    lab("kill", "nat1")
    lab("start", "nat1")
    time.sleep(10)
    assert client.state("nat1") == "not listed"


def test_a_machine_that_is_gone_is_removed(client: Client) -> None:
    lab("kill", "w2")
    run(
        *("ansible-playbook", "-i", str(INVENTORY), "playbooks/remove_worker.yml"),
        *("--limit", "w2"),
    )
    assert client.state("w2") == "not listed"


def test_a_reset_goes_through_where_the_store_is_on_a_disk_of_its_own(client: Client) -> None:
    """The last of all: nothing is left of the pool."""
    lab("start", "w2")
    store, unit = "/var/lib/kestrel/manager", "kestrel-manager"
    lab("ssh", "mgr", f"systemctl stop {unit}; mount -t tmpfs store {store}")
    lab("ssh", "mgr", f"chown kestrel:kestrel {store} && systemctl start {unit}")
    wait_until(lambda: "kestrel.db" in lab("ssh", "mgr", f"ls {store}"))
    lab("ssh", "srv", "mount -t tmpfs data /var/lib/prosody")
    assert "/var/lib/prosody is mounted" in refused("reset", "confirm=yes")
    lab("ssh", "srv", "umount /var/lib/prosody")
    playbook("reset", confirm="yes")
    assert lab("ssh", "mgr", f"ls -A {store}; mountpoint {store}") == f"{store} is a mountpoint\n"
    for host in ("mgr", "w1", "w2"):
        assert "kestrel" not in lab("ssh", host, "ls /opt /etc; systemctl list-unit-files")
    assert lab("ssh", "w1", "ls -d /var/lib/kestrel || true") == ""
