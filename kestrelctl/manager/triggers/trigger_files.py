"""The files that define triggers, and the triggers of a pool."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kestrelctl.errors import UsageError
from kestrelctl.manager.environments.environment_desk import EnvironmentDesk
from kestrelctl.manager.handlers.handler_desk import HandlerDesk
from kestrelctl.manager.request_dispatch import RequestDispatcher
from kestrelctl.manager.service import Service
from kestrelctl.manager.triggers.pool_watch import PoolWatch
from kestrelctl.manager.triggers.trigger_answering import TriggerRequests
from kestrelctl.manager.triggers.trigger_deeds import TriggerDeeds
from kestrelctl.manager.triggers.trigger_desk import TriggerDesk
from kestrelctl.protocol.trigger_messages import (
    EnableTrigger,
    ListFired,
    ListTriggers,
    TryTrigger,
)
from kestrelctl.triggers.trigger_definition import TriggerDefinition, read_triggers


def read_all_triggers(files: Iterable[Path]) -> list[TriggerDefinition]:
    """The triggers that files define together.

    Raises:
        UsageError: one cannot be read, or a trigger is there twice.
    """
    found: dict[str, TriggerDefinition] = {}
    for file in files:
        try:
            text = file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{file} cannot be read", cause=str(error)) from None
        for each in read_triggers(text, str(file)):
            if each.name in found:
                raise UsageError(
                    f"the trigger {each.name} is defined twice", cause=f"again in {file}"
                )
            found[each.name] = each
    return list(found.values())


def open_triggers(
    service: Service,
    dispatcher: RequestDispatcher,
    files: Iterable[Path],
    kept: Path,
    environments: EnvironmentDesk | None,
    handlers: HandlerDesk,
) -> TriggerDesk:
    """The triggers of a pool, about which users may ask from now on; `TriggerDesk.run` looks.

    Args:
        kept: the file that says which are not enabled.
        environments: None if the pool has none.

    Raises:
        UsageError: see `read_all_triggers`.
    """
    watch = PoolWatch(service, dispatcher.properties.book)
    deeds = TriggerDeeds(service, dispatcher)
    watch.environments = deeds.environments = environments
    deeds.handlers = handlers
    desk = TriggerDesk(service, watch, deeds, read_all_triggers(files), kept)
    requests = TriggerRequests(desk)
    dispatcher.serve_also(
        {
            ListTriggers: requests.list_triggers,
            ListFired: requests.list_fired,
            TryTrigger: requests.test,
            EnableTrigger: requests.enable,
        }
    )
    dispatcher.properties.on_changed = desk.on_values
    return desk
