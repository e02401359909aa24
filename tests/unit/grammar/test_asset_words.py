"""Assets as people write them."""

from __future__ import annotations

import pytest

from kestrelctl.core.model.worker.ad import AssetChange
from kestrelctl.errors import UsageError
from kestrelctl.grammar.asset_words import asked_assets, offered_assets
from kestrelctl.worker.discovery import even_bytes


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("fpga=2", AssetChange(amounts={"fpga": 2.0})),
        ("fpga=0.5", AssetChange(amounts={"fpga": 0.5})),
        ("scratch=10G", AssetChange(amounts={"scratch": float(10 << 30)})),
        ("gpus=0,1", AssetChange(units={"gpus": ("0", "1")})),
        ("gpus=indexed:0", AssetChange(units={"gpus": ("0",)})),
        ("gpus=indexed:a:b, c", AssetChange(units={"gpus": ("a:b", "c")})),
        ("gpus=indexed:", AssetChange(units={"gpus": ()})),
        ("seats=shared:4", AssetChange(shared={"seats": 4.0})),
        ("db=?", AssetChange(unknown={"db": 75})),
        ("db=?:69", AssetChange(unknown={"db": 69})),
    ],
)
def test_what_a_worker_has(word: str, expected: AssetChange) -> None:
    assert offered_assets([word]) == expected


@pytest.mark.parametrize(
    "word",
    ["fpga", "fpga=", "=2", "fpga=nan", "fpga=inf", "fpga=-1", "fpga=two", "fpga=1e9",
     "seats=shared:", "seats=shared:x", "fpga=²", "db=?:", "db=?:0", "db=?:256", "db=?:-1",
     "db=?:x", "db=?75", "db=??", "db=?:²"],
)  # fmt: skip
def test_what_is_no_asset_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="not an a"):
        offered_assets([word])


def test_nothing_is_offered_twice() -> None:
    with pytest.raises(UsageError, match="gpus is given twice"):
        offered_assets(["gpus=0,1", "gpus=2"])
    with pytest.raises(UsageError, match="db is given twice"):
        offered_assets(["db=?", "db=2"])


def test_a_status_that_is_none_is_explained() -> None:
    with pytest.raises(UsageError) as refused:
        offered_assets(["db=?:0"])
    assert refused.value.cause == (
        "a task says that there is no more by an exit status from 1 to 255"
    )
    assert refused.value.hint == "write db=? (status 75, EX_TEMPFAIL), or another status: db=?:69"


def test_what_a_task_asks_for() -> None:
    assert asked_assets(["fpga=1", "scratch=2G"]) == {"fpga": 1.0, "scratch": float(2 << 30)}


def test_the_last_word_on_an_asset_counts() -> None:
    assert asked_assets(["fpga=1", "fpga=2"]) == {"fpga": 2.0}


def test_machines_with_nearly_as_much_free_offer_the_same() -> None:
    gibibyte = 1 << 30
    assert {even_bytes(n * gibibyte) for n in range(96, 128)} == {96 * gibibyte}
    assert [even_bytes(n) for n in range(9)] == [0, 1, 2, 3, 4, 4, 6, 6, 8]
