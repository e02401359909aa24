"""A request names its answers, and a user's session reads no others."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from kestrelctl.protocol import answers, codec, directions, requests
from kestrelctl.protocol.request import Changed, Failed, Request

ANSWERS = get_args(answers.AnyAnswer)


@pytest.mark.parametrize("request_type", get_args(requests.AnyRequest), ids=lambda r: r.__name__)
def test_a_request_names_the_answer_that_its_text_names(request_type: type[Request]) -> None:
    assert request_type.answered_by
    assert set(request_type.answered_by) <= set(ANSWERS)
    text = " ".join((request_type.__doc__ or "").split())
    told = re.search(r"Answered by `(\w+)`", text)
    tag = request_type.answered_by[0].__struct_config__.tag
    assert told is None or told[1] == tag


def test_each_answer_belongs_to_a_request_or_says_that_it_failed() -> None:
    named = {each for request in get_args(requests.AnyRequest) for each in request.answered_by}
    assert set(ANSWERS) - named == {Failed}


def test_only_what_was_asked_for_is_read() -> None:
    heard = codec.CodecOfExpected(Failed)
    changed = codec.encode(Changed(id="1", what=["job 7"]))
    with pytest.raises(codec.BadMessage, match="nobody asked for an answer of type 'changed'"):
        heard.decode(changed)
    heard.expect(Changed)
    assert heard.decode(changed) == directions.answers.decode(changed)


@pytest.mark.parametrize("payload", ["no json", "{}", '{"type": 7}', '{"type": "' + "x" * 1000])
def test_what_is_no_answer_at_all_is_refused_with_a_short_reason(payload: str) -> None:
    with pytest.raises(codec.BadMessage) as refused:
        codec.CodecOfExpected(Failed).decode(payload)
    assert len(str(refused.value)) <= 300
