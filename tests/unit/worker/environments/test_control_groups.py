"""Containers are held to what the machine's control groups can hold them to."""

from __future__ import annotations

from pathlib import Path

import pytest

from kestrelctl.core.environments.environment_class import EnvironmentResources
from kestrelctl.worker.environments.control_groups import enforceable

WANTED = EnvironmentResources(cpus=1.0, memory_bytes=1 << 30)


@pytest.mark.parametrize(
    ("controllers", "can"),
    [
        ("cpu io memory pids", WANTED),
        ("memory pids", EnvironmentResources(memory_bytes=1 << 30)),
        ("hugetlb", EnvironmentResources()),
    ],
)
def test_no_more_is_asked_for_than_there_are_controllers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, controllers: str, can: EnvironmentResources
) -> None:
    own = tmp_path / "own"
    own.write_text("0::/user.slice/app\n")
    for uid, place in ((0, tmp_path), (1000, tmp_path / "user.slice/app")):
        place.mkdir(parents=True, exist_ok=True)
        (place / "cgroup.controllers").write_text(f"{controllers}\n")
        monkeypatch.setattr("os.geteuid", lambda uid=uid: uid)
        assert enforceable(WANTED, root=tmp_path, own=own) == can
        (place / "cgroup.controllers").unlink()


def test_groups_of_the_first_version_can_all(tmp_path: Path) -> None:
    assert enforceable(WANTED, root=tmp_path, own=tmp_path / "none") == WANTED
