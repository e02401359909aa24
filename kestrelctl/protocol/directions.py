"""Codecs, one for each direction in which messages go.

A user's session decodes only the answers that it asks for (`codec.CodecOfExpected`), and loads none
of this.
"""

from __future__ import annotations

from typing import TypeAlias

from kestrelctl.protocol.answers import AnyAnswer
from kestrelctl.protocol.channels import FromTask, ToTask
from kestrelctl.protocol.chat.profile import FromProfileWorker, ToProfileWorker
from kestrelctl.protocol.codec import Codec
from kestrelctl.protocol.commands import CommandDone, CommandsHere, ReadProperties, RunCommand
from kestrelctl.protocol.pools import FlockMessage
from kestrelctl.protocol.properties import PropertiesHere
from kestrelctl.protocol.requests import AnyRequest
from kestrelctl.protocol.workers import (
    EnvironmentsHere,
    FromLoan,
    FromWorker,
    Join,
    ToHost,
    ToJoiner,
    ToLoan,
    ToWorker,
)

#: Workers of both kinds: only what they say tells them apart.
FromAnyWorker: TypeAlias = (
    FromWorker
    | FromProfileWorker
    | EnvironmentsHere
    | PropertiesHere
    | CommandsHere
    | CommandDone
    | FromTask
)
ToAnyWorker: TypeAlias = ToWorker | ToHost | RunCommand | ReadProperties | ToTask
from_worker: Codec[FromAnyWorker] = Codec(FromAnyWorker)
to_profile_worker: Codec[ToProfileWorker] = Codec(ToProfileWorker)
to_worker: Codec[ToAnyWorker] = Codec(ToAnyWorker)
from_loan: Codec[FromLoan] = Codec(FromLoan)
to_loan: Codec[ToLoan] = Codec(ToLoan)
flock: Codec[FlockMessage] = Codec(FlockMessage)
from_joiner: Codec[Join] = Codec(Join)
to_joiner: Codec[ToJoiner] = Codec(ToJoiner)
requests: Codec[AnyRequest] = Codec(AnyRequest)
answers: Codec[AnyAnswer] = Codec(AnyAnswer)
