"""Which release a rollback goes back to, and which ones an upgrade leaves on a host."""

from __future__ import annotations

from typing import Any

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
