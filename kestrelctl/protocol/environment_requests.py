"""What users ask of the pool about environments. `docs/protocol.md` shows one of each.

A manager that was given no classes of environments answers the list with nothing in it, and refuses
all others, as `not-found`.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from kestrelctl.core.model.result import Count
from kestrelctl.protocol.request import AdminRequest, UserRequest

Name = Annotated[str, msgspec.Meta(max_length=100)]


class ListEnvironments(UserRequest, frozen=True, kw_only=True, tag="environment_list"):
    """The classes and what there is of each. Answered by `environments`."""


class StartOneEnvironment(AdminRequest, frozen=True, kw_only=True, tag="environment_start"):
    """Start an environment (admins only); it stays until it is stopped. Answered by `changed`.

    Attributes:
        of: the name of its class.
        host: the worker at whose machine; empty for the one with the most room.
    """

    only_admins_may = "start and stop environments"

    of: Name
    host: Annotated[str, msgspec.Meta(max_length=3_000)] = ""


class StopEnvironments(AdminRequest, frozen=True, kw_only=True, tag="environment_stop"):
    """Stop environments (admins only). Answered by `changed`.

    Attributes:
        numbers: which; those of a class that work still needs are started anew.
    """

    only_admins_may = "start and stop environments"

    numbers: Annotated[list[Count], msgspec.Meta(min_length=1, max_length=1_000)]


EnvironmentRequest: TypeAlias = ListEnvironments | StartOneEnvironment | StopEnvironments
