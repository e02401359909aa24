"""Who may start and stop environments."""

from __future__ import annotations

from typing import Any

import pytest

from kestrelctl.errors import NotAllowed
from kestrelctl.manager.caller import Caller
from kestrelctl.manager.environments.environment_answering import EnvironmentRequests
from kestrelctl.protocol import environment_requests as rq


async def test_only_admins_start_and_stop_environments() -> None:
    desk: Any = object()  # which nobody gets at
    requests = EnvironmentRequests(desk)
    user = Caller("ada@users.pool/desk", False, lambda answer: None)
    with pytest.raises(NotAllowed):
        await requests.start(user, rq.StartOneEnvironment(of="gpu"))
    with pytest.raises(NotAllowed):
        await requests.stop(user, rq.StopEnvironments(numbers=[1]))
