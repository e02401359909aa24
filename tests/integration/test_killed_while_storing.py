"""A real worker is killed when a task has computed and what it left is not stored yet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_inputs import Host, Site, site, wait_for  # noqa: F401  (a fixture)

pytestmark = pytest.mark.timeout(180)

#: It takes a while to be packed and sent; holes would take none.
LARGE = "500M"


def records(host: Host) -> list[Path]:
    return list((host.inputs.parent / "tasks" / "computed").glob("*"))


def kill_while_it_stores(host: Host) -> None:
    wait_for(lambda: records(host))
    host.kill()
    host.process.wait(30)
    assert records(host), "it was stored before the blow"


def noting(site: Site, name: str) -> tuple[Path, str]:  # noqa: F811
    """A file that tasks of a host see, and a script that notes there that it ran."""
    notes = site.desk.directory / name / "notes"
    return (
        notes,
        f"echo ran >>{notes}; head -c {LARGE} /dev/zero >large; echo result >file; echo text",
    )


def test_the_next_process_stores_it_and_nothing_runs_again(site: Site) -> None:  # noqa: F811
    host = site.host("h1")
    notes, script = noting(site, "h1")
    site.submit(f"--keep large --keep file -- sh -c '{script}'")
    kill_while_it_stores(host)
    host.restart()
    assert "done" in site.desk.types("kestrelctl job wait last --timeout 100")[-1]
    assert notes.read_text() == "ran\n"
    task = site.task()
    assert (task["output_files"], task["losses"], task["exit_code"]) == (2, 0, 0)
    assert site.desk.types("kestrelctl job logs last") == ["text"]
    site.desk.types("kestrelctl job fetch last --to got")
    assert (site.desk.directory / "got" / "0" / "file").read_text() == "result\n"
    wait_for(lambda: not records(host))
    assert "done" in site.submit("--keep a --wait -- touch a")[-1]


def test_a_repetition_that_has_begun_meanwhile_is_stopped(site: Site) -> None:  # noqa: F811
    first = site.host("h1")
    notes, script = noting(site, "h1")
    elsewhere = "case $KESTREL_WORKER in h1@*) ;; *) sleep 600 ;; esac"
    site.submit(f"--keep large --keep file -- sh -c '{elsewhere}; {script}'")
    kill_while_it_stores(first)
    second = site.host("h2")
    began = "kestrelctl job tasks last -q -o json"
    wait_for(lambda: "h2@" in str(json.loads("\n".join(site.desk.types(began)))[0]["worker"]))
    first.restart()
    assert "done" in site.desk.types("kestrelctl job wait last --timeout 100")[-1]
    task = site.task()
    assert str(task["worker"]).startswith("h1@")
    assert task["losses"] == 0
    assert notes.read_text() == "ran\n"
    assert records(second) == []


def test_what_was_cancelled_meanwhile_ends(site: Site) -> None:  # noqa: F811
    host = site.host("h1")
    notes, script = noting(site, "h1")
    site.submit(f"--keep large -- sh -c '{script}'")
    kill_while_it_stores(host)
    site.desk.types("kestrelctl job cancel last")
    host.restart()
    assert "cancelled" in site.desk.types("kestrelctl job wait last --timeout 60")[-1]
    wait_for(lambda: not records(host))
    assert "done" in site.submit("--keep a --wait -- touch a")[-1]
    assert notes.read_text() == "ran\n"
