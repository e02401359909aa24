"""A session tells the pool of its host: all after a welcome, then what changes, some at a time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from neighbourskit import on_its_own_clock

from kestrelctl.core.properties.reading import PropertyReading
from kestrelctl.protocol import codec, workers
from kestrelctl.protocol.properties import MOST_READINGS, PropertiesHere
from kestrelctl.worker.connection.properties import COLLECT_SECONDS, SessionProperties


class Told:
    def __init__(self) -> None:
        self.agent: Any = SimpleNamespace(welcomed=False)
        self.said: list[PropertiesHere] = []
        self.session = SessionProperties(self.agent, self._send)

    def _send(self, message: workers.Message) -> None:
        assert isinstance(message, PropertiesHere)
        assert codec.fits(codec.encode(message))
        self.said.append(message)

    def welcome(self) -> None:
        self.agent.welcomed = True
        self.session.on_welcome()

    def put(self, name: str, value: int | str) -> None:
        self.session.put(name, PropertyReading(1.0, value))

    def values(self) -> list[tuple[bool, dict[str, Any]]]:
        return [(s.anew, {r.name: r.value for r in s.readings}) for s in self.said]


@on_its_own_clock
async def test_all_is_told_after_a_welcome_and_then_what_changes_together() -> None:
    told = Told()
    told.put("a", 1)
    told.put("b", 2)
    await asyncio.sleep(2 * COLLECT_SECONDS)
    assert told.said == []
    told.welcome()
    assert told.values() == [(True, {"a": 1, "b": 2})]
    told.put("a", 1)
    await asyncio.sleep(2 * COLLECT_SECONDS)
    assert len(told.said) == 1, "nothing has changed"
    told.put("a", 3)
    told.put("b", 4)
    told.put("a", 5)
    await asyncio.sleep(2 * COLLECT_SECONDS)
    assert told.values()[1:] == [(False, {"a": 5, "b": 4})]


@on_its_own_clock
async def test_what_was_read_while_the_server_was_away_is_told_after_the_next_welcome() -> None:
    told = Told()
    told.put("a", 1)
    told.put("b", 9)
    told.welcome()
    told.put("a", 2)
    told.session.stop()
    told.agent.welcomed = False
    told.put("a", 3)
    await asyncio.sleep(2 * COLLECT_SECONDS)
    assert len(told.said) == 1
    told.welcome()
    assert told.values()[1:] == [(True, {"a": 3, "b": 9})]


@on_its_own_clock
async def test_very_many_long_ones_are_told_in_several_messages() -> None:
    told = Told()
    for n in range(200):
        told.put(f"p{n}", "&" * 1024)
    told.welcome()
    assert [(s.anew, len(s.readings)) for s in told.said] == [
        (n == 0, MOST_READINGS) for n in range(4)
    ]
