"""What a worker says about its machine."""

from __future__ import annotations

import math
import os
from pathlib import Path

import msgspec
import psutil

from kestrelctl.checkout import own_version
from kestrelctl.worker.discovery import CgroupLimits, cgroup_limits, discover, machine_tags

GIB = 1 << 30


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def mount(kind: str, point: str, *, mounted: str = "/", options: str = "rw") -> str:
    return f"31 23 0:28 {mounted} {point} rw,relatime shared:9 - {kind} cgroup {options}\n"


def test_without_control_groups_there_is_no_limit(tmp_path: Path) -> None:
    assert cgroup_limits(tmp_path) == CgroupLimits(math.inf, math.inf)


def test_v2_takes_the_tightest_limit_on_the_way_up(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/system.slice/worker.service\n",
        "proc/self/mountinfo": mount("cgroup2", "/sys/fs/cgroup"),
        "sys/fs/cgroup/system.slice/cpu.max": "150000 100000\n",
        "sys/fs/cgroup/system.slice/memory.max": f"{8 * GIB}\n",
        "sys/fs/cgroup/system.slice/worker.service/cpu.max": "max 100000\n",
        "sys/fs/cgroup/system.slice/worker.service/memory.max": f"{2 * GIB}\n",
    }
    assert cgroup_limits(tree(tmp_path, files)) == CgroupLimits(1.5, 2 * GIB)


def test_v1_reads_each_controller_from_its_own_tree(tmp_path: Path) -> None:
    cpu, memory = "sys/fs/cgroup/cpu,cpuacct/job", "sys/fs/cgroup/memory/job"
    files = {
        "proc/self/cgroup": "5:memory:/job\n4:cpu,cpuacct:/job\n1:name=systemd:/job\n0::/\n",
        "proc/self/mountinfo": mount("tmpfs", "/sys/fs/cgroup")
        + mount("cgroup", "/sys/fs/cgroup/cpu,cpuacct", options="rw,cpu,cpuacct")
        + mount("cgroup", "/sys/fs/cgroup/memory", options="rw,memory"),
        f"{cpu}/cpu.cfs_quota_us": "400000\n",
        f"{cpu}/cpu.cfs_period_us": "100000\n",
        f"{memory}/memory.limit_in_bytes": f"{3 * GIB}\n",
    }
    assert cgroup_limits(tree(tmp_path, files)) == CgroupLimits(4.0, 3 * GIB)


def test_v1_without_a_quota_has_no_limit(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "4:cpu:/\n",
        "proc/self/mountinfo": mount("cgroup", "/sys/fs/cgroup/cpu", options="rw,cpu"),
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    }
    assert cgroup_limits(tree(tmp_path, files)).cpus == math.inf


def test_in_a_container_the_group_is_the_root_of_the_mount(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "5:memory:/docker/0123\n",
        "proc/self/mountinfo": mount(
            "cgroup", "/sys/fs/cgroup/memory", mounted="/docker/0123", options="rw,memory"
        ),
        "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{GIB}\n",
    }
    assert cgroup_limits(tree(tmp_path, files)).memory_bytes == GIB


def test_the_facts_of_this_machine() -> None:
    machine = discover()
    assert 1 <= machine.cpus <= (os.cpu_count() or 1)
    assert 0 < machine.memory_bytes <= psutil.virtual_memory().total
    assert machine.os == os.uname().sysname
    assert machine.kestrel_version == own_version()
    assert all((machine.hostname, machine.arch, machine.python_version))


def test_processors_that_may_not_be_used_do_not_count() -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert discover().cpus == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_a_machine_provides_what_programs_are_made_for() -> None:
    machine = msgspec.structs.replace(
        discover(), os="Linux", arch="x86_64", distribution="linuxmint"
    )
    assert machine_tags(machine) == ("LINUX", "X86_64", "LINUXMINT")
    assert machine_tags(msgspec.structs.replace(machine, distribution="")) == ("LINUX", "X86_64")


def test_this_machine_says_what_it_is() -> None:
    assert machine_tags(discover())[:2] == (os.uname().sysname.upper(), os.uname().machine.upper())
