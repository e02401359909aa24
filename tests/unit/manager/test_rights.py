"""Each request says by its type whose it is to make, and one place checks that."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

import kestrelctl
from kestrelctl.errors import NotAllowed
from kestrelctl.manager.caller import Caller, no_answer
from kestrelctl.manager.rights import Rights
from kestrelctl.protocol import directions
from kestrelctl.protocol.request import AdminRequest, JobRequest, JobsRequest, Request, UserRequest
from kestrelctl.protocol.requests import AnyRequest

PACKAGE = Path(kestrelctl.__file__).parent
DOCS = Path(__file__).parents[3] / "docs"
REQUESTS: tuple[Any, ...] = get_args(AnyRequest)
#: Those that are about no jobs; `test_manager_privacy.py` asks for jobs of others.
NO_JOBS = [kind for kind in REQUESTS if not issubclass(kind, JobRequest | JobsRequest)]
NOBODY: Any = None  # whose jobs are looked at

#: What the page calls each right.
ANY_USER, OWNER, OWNER_OR_SHARED, ADMIN = (
    "any user",
    "the owner of the jobs, and admins",
    "the same; in a pool that shares jobs, any user",
    "admins",
)


def right_of(request: Any) -> str:
    """Whose a type of requests is to make, as the page calls it."""
    if issubclass(request, AdminRequest):
        return ADMIN
    if issubclass(request, JobRequest | JobsRequest):
        return OWNER_OR_SHARED if request.shared else OWNER
    assert issubclass(request, UserRequest)
    return ANY_USER


def examples() -> dict[type, Request]:
    """The first request of each type on the page that shows them."""
    text = (DOCS / "protocol.md").read_text().partition("## User to pool")[2]
    text = text.partition("\n## ")[0]
    found = re.findall(r"```json\n(.*?)\n```", text, re.DOTALL)
    requests = [directions.requests.decode(example) for example in found]
    return {type(request): request for request in reversed(requests)}


def test_the_page_says_of_each_request_whose_it_is() -> None:
    text = (DOCS / "security.md").read_text()
    rows = re.findall(r"^\| ([^|]*) \| ((?:`\w+`(?:, )?)+) \|$", text, re.MULTILINE)
    told = {right: sorted(re.findall(r"`(\w+)`", tags)) for right, tags in rows}
    expected: dict[str, list[str]] = {}
    for request in REQUESTS:
        expected.setdefault(right_of(request), []).append(request.__struct_config__.tag)
    assert told == {right: sorted(tags) for right, tags in expected.items()}


def test_a_request_that_does_not_say_whose_it_is_cannot_be_defined() -> None:
    with pytest.raises(TypeError, match="must say whose it is"):

        class Anybodys(Request, frozen=True, kw_only=True, tag="anybodys"):
            pass


def test_a_request_for_admins_that_does_not_say_what_it_does_cannot_be_defined() -> None:
    with pytest.raises(TypeError, match="must say what it does"):

        class Unsaid(AdminRequest, frozen=True, kw_only=True, tag="unsaid"):
            pass


@pytest.mark.parametrize("kind", NO_JOBS, ids=lambda kind: str(kind.__struct_config__.tag))
async def test_only_admins_make_what_is_for_admins_and_everybody_what_is_for_users(
    kind: type,
) -> None:
    request = examples()[kind]
    rights = Rights(NOBODY)
    assert await rights.check(Caller("root@users.pool/desk", True, no_answer), request) == ()
    user = Caller("ada@users.pool/desk", False, no_answer)
    if isinstance(request, UserRequest):
        assert await rights.check(user, request) == ()
    else:
        with pytest.raises(NotAllowed, match=r"^only an admin of the pool may \w+ "):
            await rights.check(user, request)


def test_what_a_type_says_of_its_right_does_not_travel() -> None:
    assert REQUESTS
    for request in REQUESTS:
        names = {field.name for field in msgspec.structs.fields(request)}
        assert not names & {"only_admins_may", "shared", "among", "in_part"}


def places_that_ask_for_admins(package: Path) -> list[str]:
    """Where a program decides by whether a caller, or the sender of an event, is an admin; where
    that is only passed on does not count.
    """
    found = []
    for module in sorted(package.rglob("*.py")):
        tree = ast.parse(module.read_text())
        passed_on = {
            id(argument)
            for call in ast.walk(tree)
            if isinstance(call, ast.Call)
            for argument in (*call.args, *(word.value for word in call.keywords))
        }
        found += [
            f"{module.relative_to(package)}: {ast.unparse(node)}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and ast.unparse(node) in ("caller.admin", "self.admin", "event.admin")
            and id(node) not in passed_on
        ]
    return found


def test_one_place_of_the_manager_asks_whether_somebody_is_an_admin() -> None:
    assert places_that_ask_for_admins(PACKAGE) == ["manager/caller.py: self.admin"]
