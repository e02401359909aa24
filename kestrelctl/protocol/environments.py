"""Messages between the pool and workers whose machines make environments. `docs/protocol.md` shows
one of each.

A worker that makes none says nothing of this, and is told nothing.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from kestrelctl.core.model.result import Count
from kestrelctl.environments.node_command import MOST_WORDS
from kestrelctl.protocol.work import Message

#: Longer ones do not travel: a recipe is a list of requirements, or a page of shell.
MOST_RECIPE_CHARACTERS = 65_536
MOST_ENVIRONMENTS = 1_000

Short = Annotated[str, msgspec.Meta(max_length=1_000)]


class HeldEnvironment(msgspec.Struct, frozen=True, array_like=True):
    """An environment on a worker's machine.

    Attributes:
        of: the name of its class.
        asked_for: as its order said.
        starts: whether its program has yet to be started.
        node: whether that is no worker, as its order said.
    """

    number: Count
    of: Short
    asked_for: bool
    starts: bool
    node: bool = False


class EndedEnvironment(msgspec.Struct, frozen=True, array_like=True):
    """One that is gone from a worker's machine.

    Attributes:
        why: in words; empty if the pool asked for it.
    """

    number: Count
    of: Short
    why: Short


class EnvironmentsHere(Message, frozen=True, kw_only=True, tag="environments"):
    """What a worker's machine makes and has; after each welcome, and when it has changed.

    Attributes:
        kinds: of environments that it can make.
        ended: since the last time.
    """

    kinds: Annotated[list[Short], msgspec.Meta(max_length=20)]
    here: Annotated[list[HeldEnvironment], msgspec.Meta(max_length=MOST_ENVIRONMENTS)] = []
    ended: Annotated[list[EndedEnvironment], msgspec.Meta(max_length=MOST_ENVIRONMENTS)] = []


class StartEnvironment(Message, frozen=True, kw_only=True, tag="start_environment"):
    """Start an environment; answered by `environments`, when it is there and when it has gone.

    Attributes:
        number: never used before in this pool.
        of: the name of its class.
        image, recipe: as in the class; of a recipe what is in the file.
        assets: what it has, in natural units: the machine's worker offers so much less meanwhile.
        start_seconds: when it is not prepared and started by then, it is given up.
        worker: the name under which its own worker joins; of a node its name.
        jid, password: the temporary account with which that worker joins; empty of a node.
        asked_for: whether somebody asked for it.
        runs: what is started instead of a worker: then it is a node of something else.
    """

    number: Count
    of: Short
    kind: Short
    image: Short = ""
    recipe: Annotated[str, msgspec.Meta(max_length=MOST_RECIPE_CHARACTERS)] = ""
    tags: list[Short] = []
    assets: dict[str, float] = {}
    start_seconds: float
    worker: Short
    jid: Short = ""
    password: Short = ""
    asked_for: bool = False
    runs: Annotated[list[Short], msgspec.Meta(max_length=MOST_WORDS)] = []


class StopEnvironment(Message, frozen=True, kw_only=True, tag="stop_environment"):
    """Stop an environment; answered by `environments` when it has gone, also if it never was."""

    number: Count


#: What a worker is told that makes environments.
ToHost: TypeAlias = StartEnvironment | StopEnvironment
