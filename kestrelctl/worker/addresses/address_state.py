"""The state of an address at some moment, for a task."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from secrets import token_hex
from typing import NamedTuple, Protocol

from kestrelctl.core.model.files.inputs import Input


class AddressState(NamedTuple):
    """One state of what is at an address.

    Attributes:
        wanted: the input that says where, and perhaps the hash.
        variables: the environment of the task that wants it.
        identity: changes when it is changed there; empty if nothing tells, or nobody asked
            because of the hash.
        content: tells it from others of its owner: the hash if it is known.
    """

    wanted: Input
    variables: Mapping[str, str]
    identity: str
    content: str

    @classmethod
    async def now(cls, reader: Reader, wanted: Input, variables: Mapping[str, str]) -> AddressState:
        """Reads the state of now. KestrelError if it cannot be had."""
        if wanted.sha256:
            return cls(wanted, variables, "", wanted.sha256)
        identity = await reader.identity(wanted, variables)
        text = f"{wanted.address} {identity}" if identity else token_hex(32)
        return cls(wanted, variables, identity, hashlib.sha256(text.encode()).hexdigest())

    @property
    def name(self) -> str:
        """The name of the input."""
        return self.wanted.name

    @property
    def is_for_once(self) -> bool:
        """Whether nobody can tell later that it is still the same."""
        return not (self.identity or self.wanted.sha256)


class Reader(Protocol):
    """Reads addresses; `AddressReader` is one."""

    async def identity(self, wanted: Input, variables: Mapping[str, str]) -> str:
        """Returns a text that changes when it is changed; empty if nothing tells. KestrelError."""
        ...

    async def get(
        self, state: AddressState, target: Path, set_aside: Callable[[int], None]
    ) -> None:
        """Writes it to a file or a directory. FileChanged, KestrelError, OSError."""
        ...
