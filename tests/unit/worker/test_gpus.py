"""The GPUs of a machine, from what the vendors' tools print; the texts are of their documents."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kestrelctl.core.model.worker.ad import AssetUnit
from kestrelctl.worker.gpus import (
    detect,
    output,
    parse_amd,
    parse_nvidia,
    parse_nvidia_parts,
    seen,
)

A100 = "GPU-5f2e8f2c-0a70-11ec-9e4b-0242ac120002"
L4 = "GPU-91c03d4e-0a70-11ec-9e4b-0242ac120003"
NVIDIA = f"""\
0, {A100}, NVIDIA A100-SXM4-80GB, 81920
1, {L4}, NVIDIA L4, 23034
"""
PARTS = f"""\
GPU 0: NVIDIA A100-SXM4-80GB (UUID: {A100})
  MIG 3g.40gb     Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)
  MIG 1g.10gb     Device  1: (UUID: MIG-{A100}/9/0)
GPU 1: NVIDIA L4 (UUID: {L4})
"""
AMD = """\
{"card0": {"Unique ID": "0x18f2a5c3b7d90e61", "VRAM Total Memory (B)": "68702699520", "VRAM Total \
Used Memory (B)": "10960896", "Card Series": "AMD Instinct MI210", "Card Model": "0x740f", "Card \
Vendor": "Advanced Micro Devices, Inc. [AMD/ATI]", "Card SKU": "D67301"}, "card1": {"Unique ID": \
"N/A", "VRAM Total Memory (B)": "536870912", "Card series": "Raphael"}, "system": {"Driver \
version": "6.3.6"}}
"""


def test_what_nvidia_smi_prints() -> None:
    assert parse_nvidia(NVIDIA) == [
        ("0", AssetUnit(A100, "nvidia", "NVIDIA A100-SXM4-80GB", 81920 << 20)),
        ("1", AssetUnit(L4, "nvidia", "NVIDIA L4", 23034 << 20)),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "No devices were found\n",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
        "Failed to initialize NVML: Driver/library version mismatch\n",
        "0, [Unknown Error], [GPU is lost], 1\n",
        "\x00\x1b[31m, , ,\n",
    ],
)
def test_a_tool_in_trouble_names_no_gpu(text: str) -> None:
    assert parse_nvidia(text) == []
    assert parse_amd(text) == []


def test_memory_that_is_not_told_is_unknown() -> None:
    [(_, unit)] = parse_nvidia(f"0, {A100}, NVIDIA GB10, [N/A]\n")
    assert unit == AssetUnit(A100, "nvidia", "NVIDIA GB10")


def test_what_rocm_smi_prints() -> None:
    assert parse_amd(AMD) == [
        ("0", AssetUnit("GPU-18f2a5c3b7d90e61", "amd", "AMD Instinct MI210", 68702699520)),
        ("1", AssetUnit("1", "amd", "Raphael", 536870912)),
    ]


def test_what_stands_before_the_json_does_not_matter() -> None:
    assert parse_amd("WARNING: AMD GPU device(s) is/are in a low-power state.\n" + AMD)


@pytest.mark.parametrize(
    ("visible", "ids"),
    [
        (None, [A100, L4]),
        ("", []),
        ("1", [L4]),
        (f"{L4[:12]},0", [A100, L4]),
        (A100, [A100]),
        ("7", []),
    ],
)
def test_a_worker_offers_only_what_it_may_use_itself(visible: str | None, ids: list[str]) -> None:
    assert offered(visible) == ids


def offered(visible: str | None) -> list[str]:
    found = parse_nvidia(NVIDIA) + parse_nvidia_parts(PARTS)
    return [unit.id for unit in seen(found, visible, repeated_hides_all=True)]


@pytest.mark.parametrize("wrong", ["-1", "7", "", "GPU-", "GPU-ffff", "NoDevFiles", "MIG-"])
def test_the_list_ends_before_what_names_no_gpu(wrong: str) -> None:
    assert offered(f"1,{wrong},0") == [L4]
    assert offered(f"{wrong},0") == []


def test_the_list_ends_before_what_may_be_several() -> None:
    other = A100[:-1] + "9"
    found = parse_nvidia(f"{NVIDIA}2, {other}, NVIDIA A100-SXM4-80GB, 81920\n")
    assert seen(found, f"1,{A100[:20]},0", repeated_hides_all=True) == [found[1][1]]


def test_one_that_is_named_twice_hides_all_from_cuda_and_ends_the_list_for_rocm() -> None:
    assert offered("0,1,0") == []
    found = parse_amd(AMD)
    assert seen(found, "1,1,0", repeated_hides_all=False) == [found[1][1]]


def test_rocm_knows_ids_in_capitals() -> None:
    found = parse_amd(AMD)
    assert seen(found, "GPU-18F2A5C3B7D90E61", repeated_hides_all=False) == [found[0][1]]


def test_parts_of_gpus_are_offered_where_they_are_named() -> None:
    first, second = "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f", f"MIG-{A100}/9/0"
    assert offered(first) == [first]
    assert offered(f"{second},{first[:10]}") == [first, second]
    assert offered(f"1,{second}") == [L4, second]
    assert parse_nvidia_parts(PARTS)[1] == (
        "",
        AssetUnit(second, "nvidia", "NVIDIA A100-SXM4-80GB MIG 1g.10gb"),
    )


def tool(directory: Path, name: str, text: str) -> None:
    path = directory / name
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)


def test_all_vendors_are_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert detect({}) == (), "neither tool is there"
    tool(tmp_path, "nvidia-smi", f"print({NVIDIA!r}, end='')")
    tool(tmp_path, "rocm-smi", f"print({AMD!r}, end='')")
    found = detect({"CUDA_VISIBLE_DEVICES": "0"})
    assert [unit.id for unit in found] == [A100, "GPU-18f2a5c3b7d90e61", "1"]


def test_the_tool_is_asked_for_parts_where_they_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    answer = f"import sys\nprint({PARTS!r} if sys.argv[1] == '-L' else {NVIDIA!r}, end='')"
    tool(tmp_path, "nvidia-smi", answer)
    assert [unit.id for unit in detect({"CUDA_VISIBLE_DEVICES": "MIG-c6d4f1ef"})] == [
        "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"
    ]
    assert [unit.id for unit in detect({})] == [A100, L4]


def test_a_tool_that_fails_or_hangs_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    tool(tmp_path, "failing", f"print({NVIDIA!r})\nraise SystemExit(9)")
    tool(tmp_path, "hanging", "import signal\nprint('0', flush=True)\nsignal.pause()")
    assert output(("failing",)) == ""
    assert output(("hanging",), timeout_seconds=0.05) == ""
    assert output(("nowhere",)) == ""
