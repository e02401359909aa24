"""An environment: a worker, or a node of something else, that was started when it was needed."""

from __future__ import annotations

import enum

import msgspec


class EnvironmentPhase(enum.StrEnum):
    """The phase of an environment between its start and its end."""

    STARTING = "starting"  #: its host was told to start it, and its worker has not joined yet
    READY = "ready"  #: its worker has joined; of a node, its program runs
    STOPPING = "stopping"  #: its host was told to stop it, and has not said that it is gone


class Environment(msgspec.Struct, kw_only=True):
    """One environment.

    Attributes:
        number: never used twice in a pool.
        of: the name of its class.
        host: the worker on whose machine it is.
        since: when it came into its phase, in seconds since the epoch.
        idle_since: since when its worker has had nothing to do; None while it has.
        worker: the name of its own worker's account; for a node, its name.
        held: whether its host has said that it holds it: only then does what it has count there.
        has_worked: whether its worker has ever been given anything; for a node, whether it has run
            for a while.
        asked_for: whether somebody asked for it, or a trigger did: it stays until it is stopped.
        node: whether it is a node of something else, and boots no worker.
        draining: whether its worker gets nothing new.
        makes_room_for: the class for which it is drained; empty if somebody asked for the drain.
    """

    number: int
    of: str
    host: str
    phase: EnvironmentPhase
    since: float
    idle_since: float | None = None
    worker: str = ""
    held: bool = False
    has_worked: bool = False
    asked_for: bool = False
    node: bool = False
    draining: bool = False
    makes_room_for: str = ""
