"""What a dashboard says that Grafana's own definitions do not know: names, types, choices, units.

The definitions are the classes of grafana-foundation-sdk, which Grafana Labs generates from
Grafana's sources. They decode anything: a name that they do not know vanishes, and no value is
looked at. So a dashboard is decoded and encoded again, and what vanished was unknown; and each
value is held against the type that its class names. What is added are Grafana's defaults.

Not in the definitions, and so not looked at: the options of transformations, the names of reducers
and of colour schemes.
"""

from __future__ import annotations

import enum
import json
import types
import typing
import warnings
from collections.abc import Iterator
from typing import Any

from grafana_foundation_sdk.cog import runtime
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models import units

with warnings.catch_warnings():  # it prefers a newer model, which Grafana 10 and 11 do not read
    warnings.simplefilter("ignore", DeprecationWarning)
    from grafana_foundation_sdk.models import dashboard

register_default_plugins()

UNITS = {value for name, value in vars(units).items() if name[0].isupper()}


def problems(board: dict[str, Any]) -> list[str]:
    """What Grafana would ignore or misread in a dashboard's JSON, each with its place."""
    return [*_of_json(board, dashboard.Dashboard, "")]


def _of_json(value: dict[str, Any], kind: Any, path: str) -> Iterator[str]:
    decoded = kind.from_json(value)
    yield from _lost(value, json.loads(json.dumps(decoded, cls=JSONEncoder)), path)
    yield from _of_object(decoded, path)


def _lost(given: Any, kept: Any, path: str) -> Iterator[str]:
    """Names that did not come back."""
    if isinstance(given, dict):
        for name, value in given.items():
            if name in kept:
                yield from _lost(value, kept[name], f"{path}.{name}")
            else:
                yield f"{path}.{name}: unknown"
    elif isinstance(given, list):
        for index, (value, back) in enumerate(zip(given, kept, strict=True)):
            yield from _lost(value, back, f"{path}[{index}]")
    elif given != kept:
        yield f"{path}: {given!r} is read as {kept!r}"


def _of_object(thing: Any, path: str) -> Iterator[str]:
    """Attributes of a decoded object that are not of the types its class names."""
    for name, kind in typing.get_type_hints(type(thing)).items():
        value = getattr(thing, name)
        yield from _of_value(value, kind, f"{path}.{name}")
        if name == "unit" and value not in {None, *UNITS}:
            yield f"{path}.unit: {value!r} is no unit"
    match thing:
        case dashboard.Panel():
            yield from _of_plugin(thing, path)
        case dashboard.DynamicConfigValue():  # an override: one option of a field, by its name
            yield from _of_json({thing.id_val: thing.value}, dashboard.FieldConfig, path)
        case runtime.UnknownDataquery():
            yield f"{path}: a query of no kind known"


def _of_plugin(panel: dashboard.Panel, path: str) -> Iterator[str]:
    """A panel's own options are looked at only if Grafana has this kind, with these options."""
    plugin = runtime.panelcfg_config(panel.type_val)
    if plugin is None:
        yield f"{path}: {panel.type_val!r} is not a panel of Grafana's own"
    elif plugin.field_config_from_json_hook is None and panel.field_config.defaults.custom:
        yield f"{path}: fields of a {panel.type_val} have no options of their own (custom)"


def _of_value(value: Any, kind: Any, path: str) -> Iterator[str]:
    origin, choices = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        found = [[*_of_value(value, each, path)] for each in choices]
        if all(found):
            yield from min(found, key=len)
    elif origin is list and isinstance(value, list):
        for index, each in enumerate(value):
            yield from _of_value(each, choices[0], f"{path}[{index}]")
    elif origin is dict and isinstance(value, dict):
        for name, each in value.items():
            yield from _of_value(each, choices[1], f"{path}.{name}")
    elif hasattr(kind, "from_json") and isinstance(value, dict):  # left as JSON by its parent
        yield from _of_json(value, kind, path)
    elif not _fits(value, kind):
        yield f"{path}: {value!r} is not {kind}"
    elif hasattr(value, "to_json"):
        yield from _of_object(value, path)


def _fits(value: Any, kind: Any) -> bool:
    if kind in (object, Any):
        return True
    if typing.get_origin(kind) is typing.Literal:
        return value in typing.get_args(kind)
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    if isinstance(kind, enum.EnumMeta):
        return value in {each.value for each in kind}
    if kind is float:
        return isinstance(value, int | float)
    return isinstance(value, typing.get_origin(kind) or kind)
