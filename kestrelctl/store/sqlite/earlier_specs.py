"""Stored specs from before a job had a `program`: its other fields included what a worker runs.

This belongs to one step of `store.migrations`, and is changed as little as that.
"""

from __future__ import annotations

import msgspec

#: The fields about what a worker runs, as they were when the step was made.
_OF_PROGRAM = frozenset(
    ("argv", "placeholders", "env", "cleanup", "time_limit_seconds", "workdir", "inputs",
     "parent_files", "stdin", "outputs", "output_to", "stages", "checkpoints",
     "checkpoint_seconds", "checkpoint_exit", "success_exits", "stop_signal",
     "stop_grace_seconds", "join", "keep_logs", "environment"),
)  # fmt: skip

_Fields = dict[str, msgspec.Raw]
_decode = msgspec.json.Decoder(_Fields).decode
_encode = msgspec.json.Encoder().encode


def with_program(spec: bytes | str) -> bytes | str:
    """A stored spec, or the head of one, with what a worker runs in its `program`.

    Items and other long fields are copied as they stand, unread, so it takes no more memory than
    the spec twice. A spec that cannot be read stays as it is: its job is reported when it is read.

    Args:
        spec: JSON.
    """
    try:
        fields = _nested(_decode(spec))
    except (msgspec.DecodeError, TypeError, UnicodeError):  # it is no JSON, or no text at all
        return spec
    if "guest" in fields:
        fields["guest"] = _guest_with_program(fields["guest"])
    return _encode(fields)


def _nested(fields: _Fields) -> _Fields:
    """Moves those of the fields that belong to a program into one of their own."""
    program = {name: value for name, value in fields.items() if name in _OF_PROGRAM}
    others = {name: value for name, value in fields.items() if name not in _OF_PROGRAM}
    return {"program": msgspec.Raw(_encode(program)), **others}


def _guest_with_program(guest: msgspec.Raw) -> msgspec.Raw:
    """Converts the `guest` of a job; the memo in it holds the template of the job at home."""
    try:
        fields = _decode(guest)
        memo = _decode(msgspec.json.decode(fields["memo"], type=bytes))
        memo["template"] = msgspec.Raw(_encode(_nested(_decode(memo["template"]))))
    except (msgspec.DecodeError, KeyError, UnicodeError):
        # The guest ends here, and its home hears nothing of it.
        return guest
    fields["memo"] = msgspec.Raw(_encode(_encode(memo)))
    return msgspec.Raw(_encode(fields))
