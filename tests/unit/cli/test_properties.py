"""`worker properties` and what `worker info` says of them."""

from __future__ import annotations

from cli_fake_pool import NOW, PROPERTIES, FakePool, run
from msgspec.structs import replace

from kestrelctl.protocol.answers import Workers, WorkerView
from kestrelctl.protocol.properties import ListProperties, PropertyList, ToldReading


def test_it_adds_up_and_leaves_out_what_there_is_not() -> None:
    answer = PropertyList(id="", workers=3, properties=PROPERTIES)
    result = run(FakePool(ListProperties=answer), "worker", "properties")
    assert result.stdout.splitlines() == [
        "PROPERTY  WORKERS  MISSING   MIN  MEAN   MAX",
        "load            2        1  0.25   1.5  2.75",
        "site            3        0",
    ]


def test_it_asks_for_a_group_and_by_name() -> None:
    pool = FakePool()
    run(pool, "worker", "properties", "load", "--group", "gpu")
    assert ListProperties(group="gpu", names=["load"]) in [
        replace(each, id="") for each in pool.asked if isinstance(each, ListProperties)
    ]


def test_info_shows_each_value_for_how_long_and_why_one_is_missing() -> None:
    view = WorkerView(
        worker="w1@workers.example.org/a",
        state="idle",
        properties=[
            ToldReading("load", NOW - 200, 0.25),
            ToldReading("on_battery", NOW - 5, False),
            ToldReading("wind", NOW - 5, None, "it took longer than 1 s"),
        ],
    )
    lines = run(FakePool(ListWorkers=Workers(id="", workers=[view])), "worker", "info", "w1").stdout
    shown = [" ".join(line.split()) for line in lines.splitlines()]
    assert "load 0.25, for 3m 20s" in shown
    assert "on_battery false, for 5.0 s" in shown
    assert "wind missing: it took longer than 1 s, for 5.0 s" in shown
