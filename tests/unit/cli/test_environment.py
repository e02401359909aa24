"""`worker environment`, as far as it needs no pool."""

from __future__ import annotations

from pathlib import Path

import cli_fake_pool
import msgspec
import pytest
from cli_fake_pool import FakePool, run

from kestrelctl.cli.environment import explanation
from kestrelctl.errors import NotFound, UsageError
from kestrelctl.protocol.answers import EnvironmentList, EnvironmentView
from kestrelctl.protocol.requests import ListEnvironments
from kestrelctl.protocol.workers import Token

TOKEN = Token(
    host="127.0.0.1", port=1, pool="example.org", jid="join-1-a@workers.example.org", password="x"
).encode()


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Classes, one of them made of what is not there."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    found = tmp_path / "environments.toml"
    found.write_text(
        '[environment.science]\nkind = "venv"\nrecipe = "science.txt"\n'
        '[environment.tree]\nkind = "chroot"\nimage = "/no/such/tree"\n'
        '[environment.node]\nkind = "venv"\nruns = "slurmd"\n'
    )
    return found


def test_a_class_that_is_not_there_is_named_with_those_that_are(file: Path) -> None:
    result = run(FakePool(), "worker", "environment", str(file), "art", TOKEN)
    assert result.exit_code == NotFound.exit_status
    assert "has no class art" in result.stderr
    assert "one of node, science, tree" in result.stderr


def test_a_mistake_in_a_file_is_named_before_a_token_is_read(file: Path) -> None:
    file.write_text("[environment.e]\nkind = 1\n")
    result = run(FakePool(), "worker", "environment", str(file), "e", "no token")
    assert result.exit_code == UsageError.exit_status
    assert f"{file}: environment.e: kind" in result.stderr


def test_a_recipe_is_looked_for_beside_the_file(file: Path) -> None:
    result = run(FakePool(), "worker", "environment", str(file), "science", TOKEN)
    assert result.exit_code == UsageError.exit_status
    assert f"the recipe {file.parent}/science.txt cannot be read" in result.stderr


def test_what_could_not_be_prepared_leaves_no_environment(file: Path) -> None:
    result = run(FakePool(), "worker", "environment", str(file), "tree", TOKEN)
    assert result.exit_code == UsageError.exit_status
    assert "the image /no/such/tree is no directory" in result.stderr
    assert not list((file.parent / "state").glob("kestrel/environments/*/chroot/running/*"))


def test_what_is_no_worker_is_not_started_with_a_token(file: Path) -> None:
    result = run(FakePool(), "worker", "environment", str(file), "node", TOKEN)
    assert result.exit_code == UsageError.exit_status
    assert "node starts no worker" in result.stderr


def test_of_a_node_it_is_said_what_runs_and_nothing_of_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = cli_fake_pool.ENVIRONMENT_CLASS
    node = msgspec.structs.replace(found, runs="slurmd -N '{name}'")
    monkeypatch.setattr(cli_fake_pool, "ENVIRONMENT_CLASS", node)
    shown = run(FakePool(), "environment", "explain", node.name).stdout
    assert "slurmd -N '{name}': no worker of this pool" in shown
    assert "without work" not in shown
    assert "waiting" not in shown


def test_classes_whose_starts_fail_are_named_with_the_time_of_the_next_try() -> None:
    """Else one looks for long at a list in which nothing ever is."""
    found = cli_fake_pool.ENVIRONMENT_CLASS
    listed = run(FakePool(), "environment", "list")
    assert "of class science: 2 starts failed at w1, the last 5.0 s ago" in listed.stderr
    assert "kestrelctl environment explain science" in listed.stderr
    nothing = EnvironmentList(id="", classes=[found], environments=[])
    listed = run(FakePool(ListEnvironments=nothing), "environment", "list")
    assert "no environments now; classes: science" in listed.stderr
    assert "of class science: 2 starts failed" in listed.stderr
    well = EnvironmentList(
        id="", classes=[msgspec.structs.replace(found, failures=[])], environments=[]
    )
    listed = run(FakePool(ListEnvironments=well), "environment", "list")
    assert "failed" not in listed.stderr
    explained = run(FakePool(), "environment", "explain", found.name).stdout
    assert "2 starts failed at w1, the last 5.0 s ago, the next try in 15 s: no" in explained


def test_environments_are_listed_page_by_page() -> None:
    first = cli_fake_pool.ENVIRONMENT
    second = msgspec.structs.replace(first, number=first.number + 1)

    def page(request: ListEnvironments) -> EnvironmentList:
        if request.after:
            return EnvironmentList(id="", classes=[], environments=[second])
        classes = [cli_fake_pool.ENVIRONMENT_CLASS]
        return EnvironmentList(id="", classes=classes, environments=[first], after=first.number)

    pool = FakePool(ListEnvironments=page)
    listed = run(pool, "environment", "list", "-o", "quiet").stdout
    assert listed.split() == [str(first.number), str(second.number)]
    explained = run(pool, "environment", "explain", "science").stdout
    assert "there are  2, of 0 to 2" in explained
    assert [request.of for request in pool.asked] == ["", "", "science", "science"]


def test_it_is_said_how_many_hosts_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    found = msgspec.structs.replace(cli_fake_pool.ENVIRONMENT_CLASS, more_hosts=1_000)
    monkeypatch.setattr(cli_fake_pool, "ENVIRONMENT_CLASS", found)
    assert "and 1,000 other hosts" in run(FakePool(), "environment", "explain", "science").stdout


def test_it_is_explained_that_an_environment_makes_room_for_another_class() -> None:
    found = cli_fake_pool.ENVIRONMENT_CLASS
    one = EnvironmentView(
        number=17, of="bulk", host="lab7@w/x", phase="ready", since=0.0, worker="env-bulk-h",
        draining=True, makes_room_for=found.name,
    )  # fmt: skip
    words = "environment 17 of class bulk at lab7 ends what it runs and then makes room for class "
    said = [str(block) for block in explanation(found, [], 0.0, [one])._blocks]
    assert said[-1].startswith(words + found.name), said
