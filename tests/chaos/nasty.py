"""Messages made from the types of the protocol: mostly as they are meant, with nasty values."""

from __future__ import annotations

import json
from random import Random
from types import UnionType
from typing import Any, get_args

import msgspec
from msgspec import inspect

from kestrelctl.core.classad.rules import FUNCTIONS, IMPURE
from kestrelctl.core.model.worker.matching_ads import JOB_ATTRIBUTES, WORKER_ATTRIBUTES
from kestrelctl.protocol import workers

#: JSON has no such numbers; some writers have.
_NO_JSON = ("@NaN@", "@-Infinity@", "@1e999@", "@-1e999@", "@1E400@", "@00@", "@0x10@")
#: Stands for lists in lists, more of them than a writer of JSON can write.
_DEEP = "@deep@"
_INTEGERS = (
    0, 1, 2, 3, -1, 255, 256, 2**31, 2**53 + 1, 2**62, 2**63 - 1, 2**63, -(2**63), 2**64, 10**18,
    10**30, 10**400, -(10**400),
)  # fmt: skip
_FLOATS = (
    0.0, 1.0, -0.0, -1.0, 0.5, 1e-9, 5e-324, 1e11, 1e12, -1e12, 1e15, 1e300, 1.7976931348623157e308,
)  # fmt: skip
_TEXTS = (
    "", " ", "\n", "\0", "\x01\x1b[31m", "\x7f", "\ud800", "\udfff\ud800", "\uffff", "\ufeff",
    "\u2028", "\u202e", "é", "München", "東京", "💥" * 30, "%s%n", "{}", "{0.__class__}", "../../x",
    "/", "/etc/passwd", "a/../..", ".", "..", "~", "-", "--", "-rf", "a=b", "a,b", "1-9", "9-1",
    "1-9999999999999999999", "last", "all", "name:*", "name:[", "name:" + "*a" * 60, "0", "1e999",
    "NaN", "null", "TERM", "SIGKILL", "stdout", "default", "root", "ada@users.kestrel.test",
    "@", "a@b@c/d", "file:///etc/passwd", "http://[::1", "http://127.0.0.1:1/x", "s3://x/../y",
    "x" * 300, "x" * 300_000, ">" * 70_000, "(" * 3_000, "*" * 3_000, "[" * 3_000, "," * 3_000,
)  # fmt: skip
_OPERANDS = (
    "0", "1", "-1", "9223372036854775807", "(-9223372036854775807 - 1)", "1e308", "1e999",
    "(1e308 * 10)", "(1e308 * 10 - 1e308 * 10)", '""', '"a"', '"1e999"', '"nan"', '"München"',
    r'"\303"', "true", "undefined", "error", "{}", '{1, "a", undefined}', "Nope", "TARGET.Nope",
    "MY.Nope", "PARENT.x", "TARGET", "[a = 1]", "'odd name'", "Free", "FreeCpus",
    "Property_load", "Cpus\u00a0", "Site", "substr(Site, 0, 2)", "Tags[99]", "Tags[-1]",
    "Cpus.x",
)  # fmt: skip
_SIGNS = (
    "||", "&&", "|", "^", "&", "==", "!=", "=?=", "=!=", "is", "isnt", "<", "<=", ">", ">=", "<<",
    ">>", ">>>", "+", "-", "*", "/", "%", "?:", ",", ";", "",
)  # fmt: skip
_ATTRIBUTES = (
    *JOB_ATTRIBUTES, *WORKER_ATTRIBUTES, "Cpus", "Memory", "Disk", "Gpus", "RequestCpus",
    "RequestMemory", "RequestDisk", "RequestGpus",
)  # fmt: skip
_PATTERNS = ("", "a", "[", "(", "(?", "x{65535}", "^.*.*x", r"\\", r"\\p{L}", "(?R)", "é", r"\303")

#: Usual values of fields of messages, so that most of a message makes sense.
TAME: dict[str, list[Any]] = {
    "argv": [["true"], ["sleep", "0.1"], ["false"]],
    "assets": [{"cpus": 2.0}],
    "after_each": [0],
    "count": [1, 2, 5],
    "environment": [None],
    "epoch": [None],
    "further": [[]],
    "graph": [None],
    "guest": [None],
    "held": [False],
    "incarnation": ["first", "second"],
    "items": [None],
    "job": ["last", "1", "2"],
    "jobs": ["last", "all", "1", "1-50"],
    "max_failures": [1, 3],
    "names": [[]],
    "no_retry_on": [[]],
    "output_to": [""],
    "priority": [100, 5],
    "request": [{"cpus": 1.0}],
    "retry_memory_bytes": [[]],
    "retry_on": [[]],
    "service": [False],
    "span": [1],
    "start": ["", "true"],
    "states": [[]],
    "stdin": [None],
    "success_exits": [[]],
    "time_limit_seconds": [None, 1.0],
    "upload": ["", "u"],
    "version": [workers.VERSION],
    "wants": [None, 3],
    "workdir": [""],
}
#: A list is not made much longer than that: what is too large for a message comes no further.
MOST_CHARACTERS = 400_000


class Nasty:
    """Makes messages.

    Args:
        tame: usual values of fields by their names, so that most of a message makes sense.

    Attributes:
        known: numbers that mean something to the pool now, such as those of jobs or attempts.
    """

    def __init__(self, dice: Random, tame: dict[str, list[Any]]) -> None:
        self._dice = dice
        self._tame = tame
        self._nasty = 0
        self.known: list[int] = [1, 2, 3]

    def message(self, kind: type, known_as: str = "") -> str:
        """A message of a type as JSON, or as what passes for it at a glance."""
        self._nasty = self._dice.choice((0, 1, 1, 1, 2, 3))
        found = self._struct(inspect.type_info(kind), all_fields=self._dice.random() < 0.2)
        if known_as:
            found["id"] = known_as
        return self.text(found)

    def text(self, message: Any) -> str:
        """A message as JSON, with numbers that JSON does not have where they were chosen."""
        text = json.dumps(message, ensure_ascii=self._dice.random() < 0.8)
        text = text.encode(errors="replace").decode()  # nobody can send half of a pair unescaped
        for word in _NO_JSON:
            text = text.replace(f'"{word}"', word.strip("@"))
        text = text.replace(f'"{_DEEP}"', "[" * 5_000 + "]" * 5_000)
        if self._dice.random() < 0.02 and '", "' in text:
            text = f"{text[:-1]}, {text[1:]}"  # each key twice
        return text

    def expression(self, depth: int = 2) -> str:
        """An expression, or nearly one."""
        dice = self._dice
        chance = dice.random()
        if depth == 0 or chance < 0.3:
            return dice.choice(_OPERANDS) if dice.random() < 0.6 else self._attribute()
        if chance < 0.55:
            left, right = self.expression(depth - 1), self.expression(depth - 1)
            return f"{left} {dice.choice(_SIGNS)} {right}"
        if chance < 0.8:
            name = dice.choice(FUNCTIONS) if dice.random() < 0.95 else dice.choice(IMPURE)
            if name.startswith("regexp"):
                return f'{name}("{dice.choice(_PATTERNS)}", {self._attribute()})'
            arguments = [self.expression(depth - 1) for _ in range(dice.choice((0, 1, 2, 2, 3, 9)))]
            return f"{name}({', '.join(arguments)})"
        if chance < 0.85:
            return f"({self.expression(depth - 1)}) ? {self.expression(0)} : {self.expression(0)}"
        if chance < 0.9:
            return f"{self.expression(depth - 1)}[{self.expression(0)}]"
        if chance < 0.97:
            return f"{dice.choice('-!~+')}({self.expression(depth - 1)})"
        nesting = dice.choice((10, 49, 51, 1500))
        return "(" * nesting + self.expression(0) + ")" * nesting

    def any_text(self) -> str:
        """A text that nobody expects."""
        return self._dice.choice(_TEXTS)

    def _attribute(self) -> str:
        return self._dice.choice(("", "", "MY.", "TARGET.")) + self._dice.choice(_ATTRIBUTES)

    def _struct(self, info: Any, *, all_fields: bool = False) -> Any:
        dice = self._dice
        fields = [field for field in info.fields if field.name != "id"]
        spoiled = dice.choice(fields).name if fields and self._nasty else ""
        values: dict[str, Any] = {}
        array: list[Any] = []
        for field in fields:
            told = field.required or field.name == spoiled or all_fields or dice.random() < 0.15
            if told or info.array_like:
                if field.name == spoiled:
                    self._nasty -= 1
                    value = self._spoiled(field.name, field.type)
                else:
                    value = self._plain(field.name, field.type)
                values[field.encode_name] = value
                array.append(value)
        if info.array_like:
            return array[: dice.randrange(1, len(array) + 1)] if dice.random() < 0.3 else array
        if info.tag is not None:
            values[info.tag_field] = info.tag
        return values

    def _plain(self, name: str, info: Any) -> Any:
        if name in self._tame and self._dice.random() < 0.9:
            return self._dice.choice(self._tame[name])
        return self._value(name, info, spoil=False)

    def _spoiled(self, name: str, info: Any) -> Any:
        chance = self._dice.random()
        if chance < 0.03:
            return self._dice.choice(_NO_JSON)
        if chance < 0.06:
            return self._dice.choice((None, True, 1, 1.5, "1", [], {}, [[]], {"a": {}}))
        if chance < 0.07:
            return self._dice.choice((_DEEP, json.loads("[" * 100 + "]" * 100)))
        return self._value(name, info, spoil=True)

    def _value(self, name: str, info: Any, *, spoil: bool) -> Any:
        dice = self._dice
        if isinstance(info, inspect.UnionType):
            return self._value(name, dice.choice(info.types), spoil=spoil)
        if isinstance(info, inspect.StructType):
            return self._struct(info)
        if isinstance(info, inspect.BoolType):
            return dice.random() < 0.5
        if isinstance(info, inspect.IntType):
            near = [*self.known, *self.known, 0, 1, 2]
            return dice.choice((*_INTEGERS, *near) if spoil else near)
        if isinstance(info, inspect.FloatType):
            return dice.choice(_FLOATS if spoil else (0.5, 1.0, 60.0))
        if isinstance(info, inspect.StrType):
            return self._text(name, spoil=spoil)
        if isinstance(info, inspect.BytesType):
            return dice.choice(("", "aGk=", "=", "%%%", "A" * 100_000) if spoil else ("", "aGk="))
        if isinstance(info, (inspect.EnumType, inspect.LiteralType)):
            values = info.values if isinstance(info, inspect.LiteralType) else list(info.cls)
            values = [getattr(value, "value", value) for value in values]
            return dice.choice([*values, "dance"] if spoil else values)
        if isinstance(info, inspect.TupleType):
            return [self._value(name, each, spoil=spoil) for each in info.item_types]
        if isinstance(info, (inspect.ListType, inspect.VarTupleType)):
            item = info.item_type
            one = [self._value(name, item, spoil=spoil) for _ in range(dice.choice((0, 1, 1, 2)))]
            times = min(dice.choice((1, 1, 1, 2, 300, 3_000)), 1 + MOST_CHARACTERS // len(str(one)))
            return one * times if spoil else one
        if isinstance(info, inspect.DictType):
            keys = [self._text("name", spoil=spoil) for _ in range(dice.choice((0, 1, 2)))]
            keys += ["cpus"] if name in ("request", "assets") else []
            return {key: self._value(name, info.value_type, spoil=spoil) for key in keys}
        return None

    def _text(self, name: str, *, spoil: bool) -> str:
        if name in ("requirements", "rank", "start", "where", "workers", "hosts"):
            return self.expression(3 if spoil else 1)
        if name == "text" and self._dice.random() < 0.8:
            asset = self._dice.choice(("Cpus", "Memory", "Gpus", "Nope", "cpus", "Weight"))
            rule = f"Consumption{asset} = {self.expression(2)}"
            weight = f"SlotWeight = {self.expression(2)}"
            return self._dice.choice((rule, weight, f"{rule}\n{weight}"))
        if spoil:
            return self._dice.choice(_TEXTS)
        return self._dice.choice(("a", "last", "1", "all"))


def kinds(union: UnionType) -> list[type[msgspec.Struct]]:
    """The types of a union of messages."""
    return [kind for part in get_args(union) for kind in (get_args(part) or (part,))]
