"""The share of its host that an environment has, beside what its class says."""

from __future__ import annotations

from collections.abc import Mapping

#: The assets of which it has a part. It has nothing of others, such as GPUs: two workers would
#: offer each.
SHARED = ("memory", "disk")


def host_share(host: Mapping[str, float], said: Mapping[str, float]) -> dict[str, float]:
    """The same part of the host's memory and disk as of its processors, where nothing is said.

    Args:
        host: what the host's worker offers now, in natural units.
        said: what the class says, processors included.
    """
    cpus = host.get("cpus", 0.0)
    part = min(1.0, said.get("cpus", 0.0) / cpus) if cpus > 0 else 0.0
    return {
        name: float(int(host[name] * part))
        for name in SHARED
        if name in host and not said.get(name)
    }
