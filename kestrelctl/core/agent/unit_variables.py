"""Tells a task which units are its own.

The variables are those that the vendors' libraries read: CUDA_VISIBLE_DEVICES (NVIDIA's CUDA),
ROCR_VISIBLE_DEVICES (AMD's ROCm); both take ids and numbers. A worker whose GPUs were configured by
hand does not know their vendor: then both are set, as Slurm does where it detects nothing
(gres.conf(5), Flags).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.assets import GPUS

_OF_VENDOR = {
    "nvidia": ("CUDA_VISIBLE_DEVICES",),
    "amd": ("ROCR_VISIBLE_DEVICES",),
    "": ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
}


def unit_variables(units: Mapping[str, Sequence[str]], ad: WorkerAd) -> dict[str, str]:
    """The variables that an attempt with these units finds in its environment.

    Args:
        units: their ids, by asset.
        ad: the ad of the worker.
    """
    found = {f"KESTREL_{asset.upper()}": ",".join(ids) for asset, ids in units.items()}
    vendor_of = {unit.id: unit.vendor for unit in ad.units.get(GPUS, ())}
    for name in variables_without_units(ad) if GPUS in units else ():
        found[name] = ",".join(
            unit for unit in units[GPUS] if name in _OF_VENDOR.get(vendor_of.get(unit, ""), ())
        )
    if "CUDA_VISIBLE_DEVICES" in found:
        # Numbers are those of nvidia-smi, not the order of speed (CUDA C++ Programming Guide).
        found["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    return found


def variables_without_units(ad: WorkerAd) -> dict[str, str]:
    """The variables of an attempt without a GPU at a worker that has some: it sees none."""
    vendors = dict.fromkeys(unit.vendor for unit in ad.units.get(GPUS, ()))
    return {name: "" for vendor in vendors for name in _OF_VENDOR.get(vendor, ())}
