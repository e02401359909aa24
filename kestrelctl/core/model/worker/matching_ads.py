"""The two ads that are held against each other: a job's and a worker's, in HTCondor's spellings.

Pure: `core.classad` has the expressions that a manager evaluates beside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from kestrelctl.core.classad.syntax import CONSTANTS, SCOPES
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.assets import Natural, amounts, natural
from kestrelctl.core.model.worker.isolation import rung_of

Value: TypeAlias = bool | int | float | str
#: Attributes and their values, as they are spelled in documents; names are the same in any case.
Attributes: TypeAlias = dict[str, Value | Sequence[Value]]

_MEBIBYTE = 1 << 20
_KIBIBYTE = 1 << 10
#: Assets with a unit of their own in ads, as HTCondor has it.
ASSET_UNITS = {"memory": _MEBIBYTE, "disk": _KIBIBYTE}
#: Assets that every ad has.
ALWAYS = ("cpus", "memory", "disk", "gpus")

#: The attributes of a job's ad beside `Request<Asset>`, and what each is.
JOB_ATTRIBUTES = {
    "Owner": "who submitted it",
    "JobName": "its `--name`",
    "JobPrio": "its `--priority`",
    "JobSeconds": "how long a task may run: `--time-limit` or `--time-request`, the less of both",
}
#: The attributes of a worker's ad beside one for each asset, and what each is.
WORKER_ATTRIBUTES = {
    "Machine": "the name of its machine",
    "Name": "its address",
    "Arch": "the processor: `X86_64`, `AARCH64`",
    "OpSys": "the operating system: `LINUX`",
    "KestrelVersion": "the version of its Kestrel",
    "Tags": "its tags, a list",
    "Isolation": "how it isolates tasks: `systemd`, `bubblewrap`, `namespace` or `plain`",
}
#: These differ from worker to worker, or from job to job: an expression may compare them with texts
#: and do nothing else with them. Otherwise each worker would be a class, and each job a shape.
IDENTITIES = frozenset({"machine", "name", "owner", "jobname"})
#: A value that was read of a worker's host is in its ad as `Property_` and the name. Values change
#: all the time: an expression may compare them with constants and do nothing else with them.
PROPERTY_PREFIX = "Property_"
#: Names that a worker's own attributes cannot have.
_OF_WORKERS = frozenset({*(name.lower() for name in WORKER_ATTRIBUTES), *ALWAYS})
_PROPERTY = PROPERTY_PREFIX.lower()
MAX_ATTRIBUTES = 50
MAX_VALUE_CHARACTERS = 255
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def amounts_ad(assets: Natural, prefix: str = "") -> Attributes:
    """An attribute for each asset: `Cpus`, `Memory` in MiB, `Disk` in KiB; 0 for none of `ALWAYS`.

    Args:
        prefix: `Request` in a job's ad.
    """
    said = dict.fromkeys(ALWAYS, 0.0) | assets
    return {
        prefix + name.capitalize(): _number(amount / ASSET_UNITS.get(name, 1))
        for name, amount in said.items()
        if amount or name in ALWAYS
    }


def in_lower_case(attributes: Attributes) -> Attributes:
    """The same with names in lower case, by which they are looked up, and lists as tuples."""
    return {
        name.lower(): tuple(value) if isinstance(value, list) else value
        for name, value in attributes.items()
    }


def _number(amount: float) -> int | float:
    """Turns a whole amount into a whole number, as HTCondor has it."""
    return int(amount) if amount == int(amount) else amount


def job_facts(spec: JobSpec, owner: str) -> Attributes:
    """The attributes of a job's ad beside what it asks for."""
    facts: Attributes = {
        "Owner": owner,
        "JobName": spec.name,
        "JobPrio": spec.priority,
    }
    seconds = least_seconds(spec.program.time_limit_seconds, spec.time_request_seconds)
    return facts if seconds is None else facts | {"JobSeconds": seconds}


def least_seconds(limit_seconds: float | None, request_seconds: float | None) -> float | None:
    """The time that a task of a job may run, as far as the job says; None if it does not."""
    said = [each for each in (limit_seconds, request_seconds) if each is not None]
    return min(said, default=None)


def job_ad(spec: JobSpec, owner: str) -> Attributes:
    """All that a job's ad says."""
    return amounts_ad(natural(amounts(spec.request)), "Request") | job_facts(spec, owner)


def tags_ad(tags: Iterable[str]) -> Attributes:
    """The attributes of a worker's ad for its tags."""
    upper = sorted({each.upper() for each in tags})
    rung = rung_of(upper)
    found: Attributes = {"Tags": upper}
    if rung:
        found["Isolation"] = rung
    return found


def worker_facts(ad: WorkerAd, jid: str) -> Attributes:
    """The attributes of a worker's ad beside its assets, tags and attributes of its own."""
    facts: Attributes = {
        "Name": jid,
        "Machine": ad.host,
        "Arch": ad.arch.upper(),
        "OpSys": ad.os.partition(" ")[0].upper(),
        "KestrelVersion": ad.version,
    }
    return {name: value for name, value in facts.items() if value != ""}


def worker_ad(ad: WorkerAd, jid: str = "") -> Attributes:
    """All that a worker's ad says; what the pool knows wins over attributes of its own."""
    assets = amounts_ad(natural(amounts(ad.assets)))
    return own_attributes(ad) | assets | tags_ad(ad.tags) | worker_facts(ad, jid)


def own_attributes(ad: WorkerAd) -> Attributes:
    """The attributes that an operator gave the worker, and those for what was read of its host."""
    said: Attributes = {
        name: _zero_is_zero(value)
        for name, value in ad.attributes.items()
        if (lower := name.lower()) not in _OF_WORKERS and lower not in ad.assets
    }
    return said | properties_ad(ad.properties)


def properties_ad(properties: Mapping[str, Value]) -> Attributes:
    """The attributes of a worker's ad for what was read of its host."""
    return {PROPERTY_PREFIX + name: _zero_is_zero(value) for name, value in properties.items()}


def _zero_is_zero(value: Value) -> Value:
    """Turns -0.0 into 0.0: these are equal, but HTCondor's library tells them apart."""
    return 0.0 if isinstance(value, float) and value == 0.0 else value


def is_of_property(name: str) -> bool:
    """Whether an attribute, in lower case, is the value of a property."""
    return name.startswith(_PROPERTY)


def problem_with_attributes(attributes: Mapping[str, Value]) -> str | None:
    """The first thing wrong with attributes of a worker's own; None if all is well."""
    if len(attributes) > MAX_ATTRIBUTES:
        return f"a worker has at most {MAX_ATTRIBUTES} attributes of its own, not {len(attributes)}"
    taken = {name.lower() for name in (*WORKER_ATTRIBUTES, *JOB_ATTRIBUTES)}
    seen: set[str] = set()
    for name, value in attributes.items():
        lower = name.lower()
        if not _NAME.fullmatch(name) or lower in (*CONSTANTS, *SCOPES, "is", "isnt"):
            return f"{name[:70]!r} is no name of an attribute"
        if lower in taken or lower.startswith("request") or is_of_property(lower):
            return f"the attribute {name} is one of the pool's own"
        if lower in seen:
            return f"the attribute {name} is there twice"
        seen.add(lower)
        if isinstance(value, str) and len(value) > MAX_VALUE_CHARACTERS:
            return f"the attribute {name} has more than {MAX_VALUE_CHARACTERS} characters"
        if isinstance(value, float) and value - value != 0:
            return f"the attribute {name} is no finite number"
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            return f"the attribute {name} is beyond 2^63"
    return None
