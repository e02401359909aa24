"""What tasks leave comes home from a real pool, once and right, also when its processes die."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import time
from pathlib import Path

import psutil
import pytest
from test_local_pool import Home, home  # noqa: F401  (a fixture)

from kestrelctl.local.pool_state import PoolState, pool_directory, read_state

pytestmark = pytest.mark.timeout(180)


def state_of(pool: str = "default") -> PoolState:
    state = read_state(pool_directory(pool))
    assert state is not None
    return state


def keeper(index: int) -> psutil.Process:
    """The keeper of a worker; it is waited for while the supervisor starts another one."""
    deadline = time.monotonic() + 30
    while not (pid := state_of().worker_pids[index]):
        assert time.monotonic() < deadline, f"worker {index} does not come back"
        time.sleep(0.05)
    return psutil.Process(pid)


def files_in(place: Path) -> dict[bytes, bytes]:
    """What is in a directory, by the bytes of its name; the notes of it aside."""
    found = {}
    for directory, names, files in os.walk(os.fsencode(place)):
        if b".kestrel" in names:
            names.remove(b".kestrel")
        for name in files:
            path = os.path.join(directory, name)
            assert not os.path.islink(path)
            found[os.path.relpath(path, os.fsencode(place))] = Path(os.fsdecode(path)).read_bytes()
    return found


def test_names_of_any_bytes_come_home_and_nothing_from_elsewhere(home: Home) -> None:  # noqa: F811
    home.run("up")
    (home.work / "key").write_text("secret")
    script = (
        f"ln -s {home.work}/key key.x; ln -s {home.work} dir; mkfifo fifo.x; mkdir -p out/deep;"
        r"""printf 1 > "$(printf 'two\nlines.x')"; printf 2 > "$(printf '\377\376.x')";"""
        "printf 3 > out/deep/a.x; printf 4 > out/b; printf 5 > left-out"
    )
    home.run("submit", "--keep", "**/*.x", "--keep", "out/", "--fetch", "got",
             "--", "sh", "-c", script)  # fmt: skip
    wanted = {b"two\nlines.x": b"1", b"\xff\xfe.x": b"2", b"out/deep/a.x": b"3", b"out/b": b"4"}
    assert files_in(home.work / "got" / "0") == wanted
    [task] = home.json("job", "tasks", "1")
    assert (task["output_files"], task["exit_code"], task["worker"][:2]) == (4, 0, "w1")
    assert "files" in home.run("job", "info", "1").stdout

    for glob in ("../*", "/etc/passwd", "a/../../b"):
        assert "a glob" in home.run("submit", "--keep", glob, "--", "true", status=2).stderr
    told = home.run("submit", "--keep", "dir/*", "--wait", "--", "sh", "-c", script, status=3)
    assert "outputs-missing: no file is 'dir/*'" in told.stderr
    told = home.run(
        "submit", "--keep", "big", "--wait", "--", "truncate", "-s", "20G", "big", status=3
    )
    assert "outputs-too-large: 21,474,836,480 bytes" in told.stderr
    assert home.run("job", "fetch", "2", status=13).stderr.count("left no files") == 1
    home.run("submit", "--wait", "--", "true")
    assert "leaves no files" in home.run("job", "fetch", "4", status=2).stderr


def test_what_has_expired_is_told_task_by_task(home: Home) -> None:  # noqa: F811
    home.run("up")
    home.run("submit", "--keep", "a", "--array", "1-3", "--wait", "--", "touch", "a")
    home.run("job", "fetch", "1", "--tasks", "2")
    for files in pool_directory("default").glob("server/data/share*/http_file_share"):
        shutil.rmtree(files)
    told = home.run("job", "fetch", "1", "-o", "json", status=13)
    assert "files of 2 tasks (1, 3) did not come" in told.stderr
    assert home.json("job", "info", "1")["state"] == "done"
    assert sorted(files_in(home.work / "job-1")) == [b"2/a"]


def test_a_thousand_tasks_leave_files_that_come_once_and_right_while_workers_die(
    home: Home,  # noqa: F811
) -> None:
    home.run("up", "--workers", "2")
    go = home.work / "go"
    script = (
        f'[ "$1" -lt 990 ] || until [ -e {go} ]; do sleep 0.05; done;'
        f'echo "$1" >>{home.work}/ran; echo "result $1" > r.txt; head -c "$1" /dev/zero > z'
    )
    home.run("submit", "--keep", "*", "--array", "1-1000", "--", "sh", "-c", script, "sh", "{n}")
    ran = home.work / "ran"
    for index, done in enumerate((100, 400, 700)):
        home.until(lambda done=done: home.json("job", "info", "1")["done"] >= done, "no progress")
        keeper(index % 2).kill()
    home.run("job", "fetch", "1", "--to", "got", status=13)
    go.touch()
    home.run("job", "wait", "1")
    home.run("job", "fetch", "1", "--to", "got")
    wanted = {b"%d/r.txt" % n: b"result %d\n" % n for n in range(1, 1001)}
    wanted |= {b"%d/z" % n: bytes(n) for n in range(1, 1001)}
    assert files_in(home.work / "got") == wanted
    assert set(ran.read_text().split()) == {str(n) for n in range(1, 1001)}
    assert home.json("job", "fetch", "1", "--to", "got")["were_there"] == 1000

    home.run("job", "fetch", "1", "--tar", "all.tar")
    with tarfile.open(home.work / "all.tar") as archive:
        read = {each.name.encode(): archive.extractfile(each) for each in archive}
        assert {name: (file or io.BytesIO()).read() for name, file in read.items()} == wanted


def test_a_manager_that_dies_between_upload_and_result_has_nothing_run_again(
    home: Home,  # noqa: F811
) -> None:
    home.run("up")
    script = (
        f"echo x >>{home.work}/ran; while [ ! -e {home.work}/go ]; do sleep 0.01; done; echo y > a"
    )
    home.run("submit", "--keep", "a", "--", "sh", "-c", script)
    home.until((home.work / "ran").exists, "it did not start")
    psutil.Process(state_of().manager_pid).kill()
    (home.work / "go").touch()
    share = pool_directory("default")
    home.until(lambda: any(share.glob("server/data/share*/http_file_share/*")), "no upload")
    home.run("job", "wait", "1")
    home.run("job", "fetch", "1")
    assert files_in(home.work / "job-1") == {b"0/a": b"y\n"}
    assert (home.work / "ran").read_text() == "x\n"
