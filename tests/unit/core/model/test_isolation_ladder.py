"""The ladder of isolation, as tags and on the command line."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from cli_fake_pool import WORKER, FakePool, run
from msgspec.structs import replace

from kestrelctl.core.model.worker import isolation
from kestrelctl.protocol import answers as an
from kestrelctl.worker import entry
from kestrelctl.worker.options import WorkerOptions


def test_a_rung_says_itself_and_all_weaker_ones() -> None:
    assert isolation.tags_of("bubblewrap") == (
        "isolation:bubblewrap",
        "isolation:namespace",
        "isolation:plain",
    )
    for rung in isolation.RUNGS:
        assert isolation.rung_of([tag.upper() for tag in isolation.tags_of(rung)]) == rung
    assert isolation.rung_of(["LINUX"]) == ""


def test_the_names_of_rungs_have_a_list_of_what_they_do_not_do() -> None:
    assert set(isolation.NOT_ENFORCED) == set(isolation.RUNGS)
    for better, weaker in pairwise(isolation.RUNGS):
        assert set(isolation.NOT_ENFORCED[better]) <= set(isolation.NOT_ENFORCED[weaker])


@pytest.mark.parametrize("tag", ["isolation:systemd", "ISOLATION:PLAIN", "R,Isolation:x"])
def test_no_operator_gives_a_tag_of_isolation(tag: str) -> None:
    result = run(
        FakePool(), *["worker", "run", "--pool", "p.org", "--credentials", "c", "--tags"], tag
    )
    assert result.exit_code == 2
    assert "--isolation is what decides about that" in result.stderr


def test_a_worker_is_run_with_a_rung_and_what_it_shares(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[WorkerOptions] = []
    monkeypatch.setattr(entry, "run", lambda options: seen.append(options) or 0)
    line = f"worker run --pool p.org --credentials c --data-dir {tmp_path}"
    assert run(FakePool(), *line.split()).exit_code == 0
    more = "--isolation namespace --share /a --share /b"
    assert run(FakePool(), *line.split(), *more.split()).exit_code == 0
    assert [(each.isolation, each.shares) for each in seen] == [
        ("auto", ()),
        ("namespace", (Path("/a"), Path("/b"))),
    ]
    assert run(FakePool(), *line.split(), "--isolation", "jail").exit_code == 2


def test_a_worker_shows_its_rung_and_what_that_leaves_open() -> None:
    tags = ["LINUX", *(tag.upper() for tag in isolation.tags_of("namespace"))]
    pool = FakePool(ListWorkers=an.Workers(id="", workers=[replace(WORKER, tags=tags)]))
    shown = run(pool, "worker", "info", "w1").stdout
    assert "isolation     namespace\n" in shown
    assert "tags          LINUX\n" in shown
    [found] = json.loads(run(pool, "worker", "list", "-o", "json").stdout)
    assert found["isolation"] == "namespace"
    assert "files of other tasks" in found["not_enforced"]
    assert "signals to other tasks and to the worker" not in found["not_enforced"]
    assert found["tags"] == tags
    assert "ISOLATION:" not in run(pool, "worker", "list", "-o", "wide").stdout
