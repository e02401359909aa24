"""Which release a checkout makes, a rollback goes back to, and an upgrade leaves on a host."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from role_files import ROLES, load
from templating import render, values_of

TASKS = ROLES / "kestrel_package/tasks"
OLD, BAD, NEW = (f"1.0.dev{n}+g12345678{n}-0123456789a{n}-py3.11" for n in (1, 2, 3))


def task(file: str, name: str) -> dict[str, Any]:
    (found,) = (each for each in load(TASKS / file) if each["name"] == name)
    return dict(found)


class Host:
    """A host with a manager: what is in /opt/kestrel, as the tasks of the role change it."""

    def __init__(self) -> None:
        self.clock = 0.0
        self.made: dict[str, float] = {}
        self.used: dict[str, float] = {}
        self.present = ""

    def upgrade(self, release: str, keep: int = 2) -> None:
        self.clock += 1
        self.made.setdefault(release, self.clock)
        given = self._given() | {"kestrel_package_release": release, "kestrel_package_keep": keep}
        touch = task("release.yml", "Remember when it came into use")["ansible.builtin.file"]
        if render(touch["modification_time"], given) == "now":
            self.used[release] = self.clock
        remove = task("release.yml", "Remove those that nobody goes back to")
        uses = {"__kestrel_package_uses": self._files(self.used, "used")}
        for gone in render(remove["loop"], given | uses | remove["vars"]):
            del self.made[gone]
            self.used.pop(gone, None)
        self.present = release

    def rollback(self) -> str:
        """The version that it went back to; empty if there was none."""
        name = task("former.yml", "Name the version")
        given = self._given() | name["vars"]
        version = str(render(name["ansible.builtin.set_fact"]["kestrel_package_version"], given))
        for release in self.made:
            if version and release.startswith(f"{version}-"):
                forget = task("go_back.yml", "Forget that newer releases were in use")
                for left in render(forget["loop"], given | {"kestrel_package_release": release}):
                    del self.used[left]
                self.present = release
        return version

    def _given(self) -> dict[str, Any]:
        link = {"stat": {"lnk_target": f"{self.present}/venv"} if self.present else {}}
        return values_of("kestrel_package") | {
            "inventory_hostname": "srv",
            "__kestrel_package_link": link,
            "__kestrel_package_begun": {"stdout": ""},
            "__kestrel_package_stamps": self._files(self.made, "installed"),
            "__kestrel_package_uses": self._files(self.used, "used"),
            "__kestrel_package_releases": {
                "files": [
                    {"path": f"/opt/kestrel/{release}", "mtime": time}
                    for release, time in self.made.items()
                ]
            },
        }

    def _files(self, found: dict[str, float], name: str) -> dict[str, Any]:
        return {
            "files": [
                {"path": f"/opt/kestrel/{release}/{name}", "mtime": time}
                for release, time in found.items()
            ]
        }


def version(release: str) -> str:
    return release.partition("-")[0]


def test_a_rollback_goes_to_the_release_that_was_in_use_before() -> None:
    host = Host()
    host.upgrade(OLD)
    host.upgrade(BAD)
    assert host.rollback() == version(OLD)
    assert host.rollback() == ""


def test_it_does_not_go_to_one_that_a_rollback_has_left() -> None:
    host = Host()
    for release in (OLD, BAD):
        host.upgrade(release, keep=3)
    host.rollback()
    host.upgrade(NEW, keep=3)
    assert set(host.made) == {OLD, BAD, NEW}
    assert host.rollback() == version(OLD)


def test_an_upgrade_after_a_rollback_keeps_the_release_that_still_runs() -> None:
    host = Host()
    host.upgrade(OLD)
    host.upgrade(BAD)
    host.rollback()
    host.upgrade(NEW)
    assert set(host.made) == {OLD, NEW}
    host.upgrade(NEW)
    assert set(host.made) == {OLD, NEW}


def test_an_older_checkout_that_was_deployed_again_counts_as_the_latest() -> None:
    host = Host()
    for release in (OLD, BAD, OLD, NEW):
        host.upgrade(release)
    assert set(host.made) == {OLD, NEW}
    assert host.rollback() == version(OLD)


def test_what_came_back_after_a_rollback_can_be_left_again() -> None:
    host = Host()
    host.upgrade(OLD)
    host.upgrade(BAD)
    host.rollback()
    host.upgrade(BAD)
    assert host.rollback() == version(OLD)


# -- which release it is ---------------------------------------------------------------------------


@pytest.fixture
def program(load: Callable[[str], ModuleType], tmp_path: Path) -> Callable[..., str]:
    """Returns a function from what is in a wheel to the digest of its program."""
    plugin = load("kestrel_package/action_plugins/kestrel_wheel")

    def digest(version: str, code: str = "print(1)", about: str = "A README.") -> str:
        wheel = tmp_path / "a.whl"
        own, manual = (f"kestrelctl-{version}.{kind}" for kind in ("dist-info", "data"))
        with zipfile.ZipFile(wheel, "w") as archive:
            for name, text in {
                "kestrelctl/__init__.py": f'__version__ = "{version}"',
                "kestrelctl/a.py": code,
                f"{manual}/data/share/man/man1/kestrelctl.1": f'.TH kestrelctl 1 "" {version}',
                f"{own}/METADATA": f"Version: {version}\n\n{about}",
                f"{own}/entry_points.txt": "kestrelctl = kestrelctl.a",
                f"{own}/RECORD": f"a digest of {about}",
            }.items():
                archive.writestr(name, text)
        found, program = plugin._program(wheel)
        assert found == version
        return str(program)

    return digest


def test_a_commit_that_changes_nothing_of_the_program_makes_no_other(
    program: Callable[..., str],
) -> None:
    first = program("0.3.0.dev0+g111111111")
    assert program("0.3.0.dev0+g222222222", about="Another README.") == first
    assert program("0.3.0.dev0+g222222222", code="print(2)") != first
    assert program("0.3.0") != first


def named(present: str, built: str) -> tuple[str, str]:
    """Release and version of a host that has the one, when a checkout has made the other."""
    link = {"stat": {"lnk_target": f"{present}/venv"} if present else {}}
    given = values_of("kestrel_package") | {
        "__kestrel_package_link": link,
        "__kestrel_package_wheel": {"release": built},
    }
    name = task("main.yml", "Name the release")
    facts = name["ansible.builtin.set_fact"]
    release = str(render(name["vars"]["release"], given))
    given |= {"release": release}
    return release, str(render(facts["kestrel_package_version"], given))


def test_a_host_keeps_the_release_that_it_has_if_only_the_commit_is_another() -> None:
    has = "0.3.0.dev0+g111111111-0123456789abcdef-py3.11"
    assert named("", has) == (has, "0.3.0.dev0+g111111111")
    assert named(has, has.replace("g1111", "g2222")) == (has, "0.3.0.dev0+g111111111")
    for other in ("g222222222-1123456789abcdef-py3.11", "g222222222-0123456789abcdee-py3.11",
                  "g222222222-0123456789abcdef-py3.13"):  # fmt: skip
        built = f"0.3.0.dev0+{other}"
        assert named(has, built) == (built, "0.3.0.dev0+g222222222")


def fits(host: str, release: str, manager_has: str) -> bool:
    """Whether a host may go back to a release when the manager's host goes to the other."""
    given = values_of("kestrel_package") | {
        "inventory_hostname": host,
        "hostvars": {"srv": {"kestrel_package_release": manager_has}},
        "kestrel_package_version": version(manager_has),
        "release": release,
    }
    return bool(render("{{ release is match(__kestrel_package_fitting) }}", given))


def test_a_host_that_was_set_up_at_a_later_commit_goes_back_with_the_others() -> None:
    """As long as that commit had the same program."""
    manager_has = "0.3.0.dev0+g111111111-0123456789abcdef-py3.11"
    assert fits("srv", manager_has, manager_has)
    assert fits("w1", "0.3.0.dev0+g111111111-fedcba9876543210-py3.13", manager_has)
    assert fits("w1", "0.3.0.dev0+g222222222-0123456700000000-py3.13", manager_has)
    assert not fits("w1", "0.3.0.dev0+g222222222-1123456700000000-py3.13", manager_has)
    # Named by an earlier version of the role.
    assert fits("w1", "0.3.0.dev0+g111111111-ba9876543210-py3.13", manager_has)
    assert not fits("srv", "0.3.0.dev0+g222222222-0123456789abcdef-py3.11", manager_has)
