"""The files that define triggers, and the triggers of a pool."""

from __future__ import annotations

from collections.abc import Container, Iterable
from pathlib import Path

from kestrelctl.core.triggers.definition import (
    MOST_TRIGGERS,
    TriggerDefinition,
    check_names,
    read_triggers,
)
from kestrelctl.defined_in_files import all_defined
from kestrelctl.manager.environments.service import EnvironmentService
from kestrelctl.manager.handlers.service import HandlerService
from kestrelctl.manager.requests.dispatch import RequestDispatcher
from kestrelctl.manager.service import Service
from kestrelctl.manager.triggers.actions import TriggerDeeds
from kestrelctl.manager.triggers.answering import TriggerRequests
from kestrelctl.manager.triggers.service import TriggerService
from kestrelctl.manager.triggers.watch import PoolWatch
from kestrelctl.store.kept_text import KeptText


def read_all_triggers(
    files: Iterable[Path], handlers: Container[str], classes: Container[str]
) -> list[TriggerDefinition]:
    """Reads the triggers that files define together.

    Args:
        handlers, classes: the names of the pool's handlers and classes of environments.

    Raises:
        UsageError: one cannot be read, a trigger is there twice, or they are too many; or one
            names a handler or a class that there is not.
    """
    found = list(all_defined(files, read_triggers, MOST_TRIGGERS).values())
    for each in found:
        check_names(each, handlers, classes)
    return found


def open_triggers(
    service: Service,
    dispatcher: RequestDispatcher,
    triggers: list[TriggerDefinition],
    kept: KeptText,
    environments: EnvironmentService | None,
    handlers: HandlerService,
    kept_seconds: float,
) -> TriggerService:
    """Makes a pool's triggers, and serves users who ask about them; `TriggerService.run` looks.

    Args:
        kept: says which are not enabled.
        environments: None if the pool has none.
        kept_seconds: how long it is kept when triggers fired.
    """
    watch = PoolWatch(service, dispatcher.properties.book)
    deeds = TriggerDeeds(service, dispatcher)
    watch.environments = deeds.environments = environments
    deeds.handlers = handlers
    desk = TriggerService(service, watch, deeds, triggers, kept, kept_seconds)
    classes = environments.classes if environments is not None else ()
    dispatcher.serve_also(TriggerRequests(desk, handlers.lines, classes).handlers())
    dispatcher.properties.on_changed = desk.on_values
    return desk
