"""Assets on the command line: what is asked for, what workers have, and what is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_fake_pool import EXPLANATION, POOL, WORKER, FakePool, run
from msgspec.structs import replace

from kestrelctl.core.model.refusal import Reason, Refusal
from kestrelctl.core.model.worker.ad import AssetChange
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq

EQUIPPED = replace(
    WORKER,
    assets={"cpus": 4.0, "memory": 8 << 30, "disk": 96 << 30, "gpus": 2.0, "seats": 4.0},
    free={"cpus": 3.5, "memory": 8 << 30, "disk": 96 << 30, "gpus": 0.5, "seats": 3.0},
    units={
        "gpus": [
            an.UnitView(
                id="GPU-5f2e", free=0.5, vendor="nvidia", model="A100", memory_bytes=80 << 30
            ),
            an.UnitView(id="GPU-91c0"),
        ]
    },
    shared=["seats"],
)
UNSURE = replace(
    WORKER,
    assets={"cpus": 4.0, "db": 3.0},
    free={"cpus": 2.0, "db": 1.0},
    unknown={"db": 75},
)


def spec_of(pool: FakePool) -> dict[str, float]:
    [request] = [each for each in pool.asked if isinstance(each, rq.SubmitJob)]
    return request.spec.request


def test_what_a_task_asks_for() -> None:
    pool = FakePool()
    words = "submit --cpus 0.5 --gpus 1 --disk 2G --asset fpga=1 -- ./train"
    assert run(pool, *words.split()).exit_code == 0
    assert spec_of(pool) == {"cpus": 0.5, "gpus": 1.0, "disk": 2 << 30, "fpga": 1.0}


def test_a_job_file_asks_the_same(tmp_path: Path) -> None:
    file = tmp_path / "train.toml"
    file.write_text(
        'command = ["./train"]\ngpus = 0.5\ndisk = "2G"\nasset = { fpga = 1, scratch = "1G" }\n'
    )
    pool = FakePool()
    assert run(pool, "submit", str(file)).exit_code == 0
    assert spec_of(pool) == {
        "cpus": 1.0, "gpus": 0.5, "disk": 2 << 30, "fpga": 1.0, "scratch": float(1 << 30)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--asset fpga", "not an asset"),
        ("--asset fpga=nan", "not an amount"),
        ("--asset fpga=inf", "not an amount"),
        ("--asset fpga=-1", "not an amount"),
        ("--asset fpga=9223372036854775808", "less than 2^60"),
        ("--asset fpga=0.0001", "0 of fpga, or 0.001"),
        ("--asset FPGA=1", "is no name of an asset"),
        ("--asset gpus=1", "gpus has an option of its own"),
        ("--gpus nan", "'nan' is no number"),
        ("--gpus inf", "'inf' is no number"),
        ("--gpus -1", "--gpus"),
        ("--disk -1", "not a size"),
        ("--success-exit 300", "go from 0 to 255, not 300\n"),
        ("--success-exit 3,200-300", "go from 0 to 255, not 200 to 300\n"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_word(words: str, why: str) -> None:
    pool = FakePool()
    result = run(pool, "submit", *words.split(), "--", "true")
    assert result.exit_code == 2
    assert why in result.stderr
    assert pool.asked == []


def test_the_hint_for_a_request_shows_a_request() -> None:
    result = run(FakePool(), "submit", "--asset", "fpga", "--", "true")
    assert result.stderr.endswith("hint: write --asset fpga=1 or --asset scratch=10G\n")


def test_a_worker_is_resized_by_the_words_of_its_own_options() -> None:
    pool = FakePool(ResizeWorker=an.Workers(id="", workers=[EQUIPPED]))
    result = run(pool, "worker", "resize", "w1", "cpus=4", "memory=8G", "gpus=0,1", "s=shared:4")
    assert result.exit_code == 0, result.stderr
    change = AssetChange(
        amounts={"cpus": 4.0, "memory": float(8 << 30)},
        units={"gpus": ("0", "1")},
        shared={"s": 4.0},
    )
    assert pool.asked == [rq.ResizeWorker(name="w1", change=change)]
    assert pool.opened[0][1], "for admins"
    assert "gpus" in result.stdout


def test_nothing_is_asked_of_a_worker_that_cannot_be_read() -> None:
    pool = FakePool()
    result = run(pool, "worker", "resize", "w1", "cpus=many")
    assert (result.exit_code, pool.asked) == (2, [])


def test_a_worker_is_shown_with_its_units() -> None:
    pool = FakePool(ListWorkers=an.Workers(id="", workers=[EQUIPPED]))
    text = run(pool, "worker", "info", "w1").stdout
    lines = {line.partition("  ")[0]: line.partition("  ")[2].strip() for line in text.splitlines()}
    assert lines["disk"] == "96 GiB of 96 GiB free"
    assert lines["gpus"] == ("0.5 of 2 free; GPU-5f2e (A100 80 GiB): 0.5 free; GPU-91c0: taken")
    assert lines["seats"] == "3 of 4 free, shared"
    assert "gpus 1.5/2 seats 1/4" in run(pool, "worker", "list").stdout
    found = json.loads(run(pool, "worker", "info", "w1", "-o", "json").stdout)
    assert found["units"]["gpus"][0]["model"] == "A100"


def test_an_estimate_is_shown_as_one() -> None:
    pool = FakePool(ListWorkers=an.Workers(id="", workers=[UNSURE]))
    text = run(pool, "worker", "info", "w1").stdout
    assert "1 of ~3 free, no more at exit status 75" in text
    assert "db 2/~3" in run(pool, "worker", "list").stdout
    [found] = json.loads(run(pool, "worker", "list", "-o", "json").stdout)
    assert (found["assets"]["db"], found["unknown"]) == (3.0, {"db": 75})


def test_how_much_memory_a_worker_has_is_never_unknown() -> None:
    result = run(FakePool(), "worker", "run", "--pool", "p", "--asset", "memory=?")
    assert result.exit_code == 2
    assert "memory has an option of its own" in result.stderr


@pytest.mark.parametrize(
    ("asset", "hint"),
    [
        ("fpga", "--asset fpga=…, or: kestrelctl pool asset set fpga …, or: kestrelctl job cancel"),
        ("gpus", "kestrelctl worker run --asset gpus=…, or: kestrelctl job cancel"),
    ],
)
def test_what_is_always_the_workers_is_not_looked_for_in_the_pool(asset: str, hint: str) -> None:
    refusal = Refusal(Reason.MISSING_ASSET, wanted=asset, found="cpus memory")
    obstacles = [an.Obstacle(workers=3, example="w1@workers.example.org/k3bW0", refusal=refusal)]
    pool = FakePool(ExplainJob=replace(EXPLANATION, obstacles=obstacles, ever=False, could_run=0))
    assert hint in run(pool, "submit", "--asset", "fpga=1", "--", "true").stderr


def test_an_asset_that_nobody_has_is_named() -> None:
    refusal = Refusal(Reason.MISSING_ASSET, wanted="fpga", found="cpus memory")
    obstacles = [an.Obstacle(workers=3, example="w1@workers.example.org/k3bW0", refusal=refusal)]
    pool = FakePool(ExplainJob=replace(EXPLANATION, obstacles=obstacles, ever=False, could_run=0))
    result = run(pool, "submit", "--asset", "fpga=1", "--", "true")
    assert "no worker has any fpga" in result.stderr
    assert "missing-asset" in run(pool, "job", "explain", "7").stdout


def test_one_that_some_have_too_little_of_is_told_apart() -> None:
    missing = Refusal(Reason.MISSING_ASSET, wanted="fpga")
    small = Refusal(Reason.TOO_SMALL, "3 fpga", "2 fpga", 0.5)
    obstacles = [
        an.Obstacle(workers=n, example=f"w{n}@workers.example.org/k", refusal=refusal)
        for n, refusal in ((1, small), (2, missing))
    ]
    pool = FakePool(ExplainJob=replace(EXPLANATION, obstacles=obstacles, ever=False, could_run=0))
    result = run(pool, "submit", "--asset", "fpga=3", "--", "true")
    assert "the closest is w1, which has 2 fpga where 3 fpga are wanted" in result.stderr


def test_the_pools_status_says_how_much_of_each_asset_is_taken() -> None:
    status = replace(
        POOL,
        capacity={"cpus": 8.0, "memory": 16 << 30, "gpus": 2.0},
        free={"cpus": 6.5, "memory": 16 << 30, "gpus": 0.5},
    )
    text = run(FakePool(PoolStatus=status), "pool", "status").stdout
    assert "cpus 1.5 of 8; memory 0 B of 16 GiB; gpus 1.5 of 2" in text
