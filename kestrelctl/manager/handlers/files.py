"""The files that define handlers of events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from kestrelctl.core.membership.handler_definition import (
    MOST_HANDLERS,
    HandlerDefinition,
    read_handlers,
)
from kestrelctl.defined_in_files import all_defined
from kestrelctl.errors import UsageError
from kestrelctl.manager.handlers.channels import HandlerChannel, way_of
from kestrelctl.manager.handlers.service import HandlerService
from kestrelctl.manager.mail.server import Post
from kestrelctl.manager.service import Service


def read_all_handlers(files: Iterable[Path], *, with_mail: bool) -> list[HandlerDefinition]:
    """Reads the handlers that files define together.

    Args:
        with_mail: whether there is a server that takes mail.

    Raises:
        UsageError: one cannot be read, a handler is there twice, or sends mail without a server.
    """
    found = list(all_defined(files, read_handlers, MOST_HANDLERS).values())
    for handler in found:
        if handler.mail and not with_mail:
            raise UsageError(
                f"the handler {handler.name} sends mail, and no server takes any",
                hint="--smtp names one",
            )
    return found


def open_handlers(
    service: Service, handlers: Sequence[HandlerDefinition], post: Post | None
) -> HandlerService:
    """Makes the handlers of a pool, which are told from now on; `HandlerService.run` does it."""
    ways: dict[str, HandlerChannel] = {}
    for each in handlers:
        way = way_of(each, post, service.name, service.clock.wall)
        if way is not None:
            ways[each.name] = way
    return HandlerService(service, handlers, ways)
