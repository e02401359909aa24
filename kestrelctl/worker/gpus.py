"""The GPUs of this machine, as the vendors' own tools tell of them.

NVIDIA: `nvidia-smi --query-gpu` (nvidia-smi(1), "Selective query options"), and `nvidia-smi -L` for
parts of GPUs (Multi-Instance GPU User Guide). AMD: `rocm-smi` with `--json` (ROCm SMI's command
line reference). A tool that is not there, fails, hangs or says what cannot be read counts as no
GPU.
"""

from __future__ import annotations

import contextlib
import csv
import logging
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence

import msgspec

from kestrelctl.core.model.worker.ad import AssetUnit
from kestrelctl.core.model.worker.ad_rules import MAX_UNITS
from kestrelctl.worker.run.orphans import kill_group

log = logging.getLogger(__name__)

#: How long a tool may take; a driver in trouble lets it hang for ever.
TOOL_SECONDS = 10.0
#: How long it may take to die.
KILLED_SECONDS = 1.0
NVIDIA = (
    "nvidia-smi", "--query-gpu=index,uuid,name,memory.total", "--format=csv,noheader,nounits",
)  # fmt: skip
NVIDIA_PARTS = ("nvidia-smi", "-L")
AMD = ("rocm-smi", "--showuniqueid", "--showproductname", "--showmeminfo", "vram", "--json")

_CARD = re.compile(r"card(\d{1,4})")
_UNIQUE = re.compile(r"0x([0-9a-fA-F]{1,16})")
_GPU_LINE = re.compile(r"GPU \d+: (.*) \(UUID: ")
_PART_LINE = re.compile(r"\s+(MIG \S+)\s+Device\s+\d+: \(UUID: (MIG-[^\s)]+)\)")


def detect(environment: Mapping[str, str] = os.environ) -> tuple[AssetUnit, ...]:
    """Finds all GPUs that this process may use, those of NVIDIA first.

    Args:
        environment: of the process; whoever started it may have kept some GPUs from it.
    """
    cuda, rocm = environment.get("CUDA_VISIBLE_DEVICES"), environment.get("ROCR_VISIBLE_DEVICES")
    nvidia_gpus = parse_nvidia(output(NVIDIA))
    if cuda is not None and "MIG-" in cuda:
        nvidia_gpus += parse_nvidia_parts(output(NVIDIA_PARTS))
    nvidia = seen(nvidia_gpus, cuda, repeated_hides_all=True)
    amd = seen(parse_amd(output(AMD)), rocm, repeated_hides_all=False)
    return (*nvidia, *amd)[:MAX_UNITS]


def output(command: tuple[str, ...], timeout_seconds: float = TOOL_SECONDS) -> str:
    """Returns what a tool prints; empty if it is not there, fails, or takes too long."""
    program = shutil.which(command[0])
    if program is None:
        return ""
    try:
        tool = subprocess.Popen(
            (program, *command[1:]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        log.warning("%s cannot be run: %s", program, error)
        return ""
    try:
        text, _ = tool.communicate(timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        kill_group(tool.pid)
        if tool.stdout is not None:
            tool.stdout.close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # in a driver's hands it cannot die
            tool.wait(KILLED_SECONDS)
        log.warning("%s says nothing within %g s: no GPU is offered", program, timeout_seconds)
        return ""
    return text.decode(errors="replace") if tool.returncode == 0 else ""


def parse_nvidia(text: str) -> list[tuple[str, AssetUnit]]:
    """(index, GPU) of each line that `NVIDIA` prints: `0, GPU-5f2e…, NVIDIA A100, 81920`."""
    found = []
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        if len(row) == 4 and row[0].isdecimal() and row[1].startswith("GPU-"):
            memory_bytes = int(row[3]) << 20 if row[3].isdecimal() and len(row[3]) < 10 else 0
            found.append((row[0], AssetUnit(row[1], "nvidia", _model(row[2]), memory_bytes)))
    return found


def parse_nvidia_parts(text: str) -> list[tuple[str, AssetUnit]]:
    """Each part of a GPU that is a device of its own (MIG) among what `NVIDIA_PARTS` prints.

    A part has no index: only its id names it.
    """
    found: list[tuple[str, AssetUnit]] = []
    model = ""
    for line in text.splitlines():
        gpu, part = _GPU_LINE.match(line), _PART_LINE.match(line)
        if gpu is not None:
            model = gpu[1]
        elif part is not None:
            found.append(("", AssetUnit(part[2], "nvidia", _model(f"{model} {part[1]}"))))
    return found


def parse_amd(text: str) -> list[tuple[str, AssetUnit]]:
    """(index, GPU) of each card in the JSON that `AMD` prints.

    ROCm knows a card by `GPU-` and its unique id in 16 hexadecimal digits; one without by its index
    only.
    """
    try:
        cards = msgspec.json.decode(text[text.find("{") :], type=dict[str, dict[str, object]])
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return []
    found = []
    for name, facts in cards.items():
        card = _CARD.fullmatch(name)
        if card is None:
            continue
        unique = _UNIQUE.fullmatch(str(facts.get("Unique ID", "")))
        memory = str(facts.get("VRAM Total Memory (B)", ""))
        model = str(facts.get("Card Series", facts.get("Card series", "")))
        unit = AssetUnit(
            f"GPU-{unique[1].lower():0>16}" if unique else card[1],
            "amd",
            _model(model),
            int(memory) if memory.isdecimal() and len(memory) < 18 else 0,
        )
        found.append((card[1], unit))
    return sorted(found, key=lambda one: int(one[0]))


def seen(
    found: Sequence[tuple[str, AssetUnit]], visible: str | None, *, repeated_hides_all: bool
) -> list[AssetUnit]:
    """The GPUs that a variable of the vendor names: by index, or by the beginning of their id.

    The list ends before the first name that is of no GPU, or of several, and where one is repeated.
    Sources: CUDA Programming Guide, "CUDA Environment Variables"; ROCm's runtime,
    `amd_filter_device.cpp`.

    Args:
        found: index and GPU. One without an index is only meant where its id is named.
        visible: None if the variable is not set.
        repeated_hides_all: whether the vendor's library shows none if one is named twice.
    """
    if visible is None:
        return [unit for index, unit in found if index]
    chosen: list[AssetUnit] = []
    for name in map(str.strip, visible.split(",")):
        meant = [unit for index, unit in found if _means(name, index, unit.id)]
        if len(meant) != 1:
            break
        if meant[0] in chosen:
            if repeated_hides_all:
                return []
            break
        chosen += meant
    return [unit for _, unit in found if unit in chosen]


def _means(name: str, index: str, unit_id: str) -> bool:
    """Whether a name of a list is that of a unit. `GPU-` alone, or `MIG-`, names none."""
    return bool(name) and (
        name == index or (len(name) > 4 and unit_id.lower().startswith(name.lower()))
    )


def _model(text: str) -> str:
    return "".join(filter(str.isprintable, text))[:100].strip()
