"""What the sessions of a worker process offer: what is detected, and what its options say."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kestrelctl.core.model.worker.ad import AssetUnit, WorkerAd, unit_ids
from kestrelctl.errors import UsageError
from kestrelctl.worker import daemon
from kestrelctl.worker.discovery import Machine, even_bytes
from kestrelctl.worker.isolation.plain import Plain
from kestrelctl.worker.options import WorkerOptions

MACHINE = Machine("lab7", "Linux", "x86_64", "3.11", "0.2", 8, 16 << 30)
GPUS = tuple(AssetUnit(f"GPU-{n}", "nvidia", "A100", 80 << 30) for n in range(3))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The machine has three GPUs; what is here was looked for."""
    found: list[str] = []
    monkeypatch.setattr(daemon, "detect", lambda: found.append("gpus") or GPUS)
    return found


def ads(directory: Path, **options: Any) -> list[WorkerAd]:
    """What the sessions say."""
    credentials = directory / "credentials"
    credentials.write_text("w@workers.pool secret\n")
    credentials.chmod(0o600)
    found: list[WorkerAd] = []
    process: Any = SimpleNamespace(
        add_session=lambda pool, ad, jid, connect, pulls: found.append(ad)
    )
    settings = WorkerOptions(pool="pool", credentials=credentials, data_dir=directory, **options)
    daemon._add_sessions(process, settings, MACHINE, Plain(), None)
    return found


def test_gpus_and_disk_are_detected(tmp_path: Path, asked: list[str]) -> None:
    [ad] = ads(tmp_path)
    assert ad.units == {"gpus": GPUS}
    assert (ad.assets["cpus"], ad.assets["gpus"]) == (8.0, 3.0)
    assert ad.assets["disk"] == even_bytes(int(ad.assets["disk"])) > 0


def test_only_a_worker_that_can_keep_inputs_says_that_it_fetches_them(
    tmp_path: Path, asked: list[str]
) -> None:
    assert "inputs" in ads(tmp_path)[0].tags
    assert "inputs" in ads(tmp_path, cache_bytes=1)[0].tags
    assert "inputs" not in ads(tmp_path, cache_bytes=0)[0].tags
    assert "inputs" not in ads(tmp_path, executor="inline")[0].tags


def test_a_worker_reads_files_by_address_where_it_is_allowed_to_and_keeps_inputs(
    tmp_path: Path, asked: list[str]
) -> None:
    def tags(**options: object) -> set[str]:
        return {tag for tag in ads(tmp_path, **options)[0].tags if tag.startswith("addresses-")}

    assert tags() == {"addresses-https", "addresses-s3"}
    assert "addresses-file" in tags(shared_files=(tmp_path,))
    assert "addresses-file" in tags(any_workdir=True)
    assert tags(shared_files=(tmp_path,), cache_bytes=0) == set()


def test_a_worker_writes_files_by_address_where_it_is_allowed_to(
    tmp_path: Path, asked: list[str]
) -> None:
    def writes(**options: object) -> bool:
        return "output-to-file" in ads(tmp_path, **options)[0].tags

    assert not writes()
    assert not writes(shared_files=(tmp_path,))
    assert writes(shared_outputs=(tmp_path,))
    assert writes(any_workdir=True)
    assert not writes(shared_outputs=(tmp_path,), executor="inline")


def test_sessions_share_what_is_detected(tmp_path: Path, asked: list[str]) -> None:
    found = ads(tmp_path, sessions=2)
    assert [unit_ids(ad) for ad in found] == [{"gpus": ("GPU-0", "GPU-2")}, {"gpus": ("GPU-1",)}]
    assert len({ad.assets["disk"] for ad in found}) == 1
    assert asked == ["gpus"], "the tools are asked once"


def test_who_names_gpus_knows_better(tmp_path: Path, asked: list[str]) -> None:
    [ad] = ads(tmp_path, assets=("gpus=0,1", "fpga=2", "seats=shared:4"))
    assert unit_ids(ad) == {"gpus": ("0", "1")}
    assert (ad.assets["fpga"], ad.assets["seats"], ad.shared) == (2.0, 4.0, ("seats",))
    assert asked == []
    [none] = ads(tmp_path, assets=("gpus=indexed:",))
    assert none.assets["gpus"] == 0


def test_what_the_pool_would_refuse_does_not_start(tmp_path: Path, asked: list[str]) -> None:
    with pytest.raises(UsageError) as refused:
        ads(tmp_path, assets=("gpus=0,0",))
    assert refused.value.cause == "two units of gpus have the same id"
