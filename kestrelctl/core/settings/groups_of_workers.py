"""Groups of workers: by tags, by an expression, by name."""

from __future__ import annotations

from kestrelctl.core.members.worker_groups import must_be_group
from kestrelctl.core.model.worker.worker_group import WorkerGroup
from kestrelctl.core.settings.kind import SettingKind
from kestrelctl.core.state import State


def _workers(state: State, group: WorkerGroup) -> int:
    return sum(
        worker.online and group.name in state.worker_groups.of(worker.jid, worker.ad)
        for worker in state.workers.values()
    )


WORKER_GROUPS = SettingKind(
    word="worker group",
    struct=WorkerGroup,
    wanted=WorkerGroup,
    most=100,  # each event of a worker looks through all
    one="group {} of workers",
    many="groups of workers",
    missing="there is no group of workers {!r}",
    listed_by="kestrelctl worker group list",
    must_make_sense=must_be_group,
    restore=lambda state, group: state.worker_groups.put(group),
    put=lambda state, group, _is_new: state.worker_groups.put(group),
    removed=lambda state, group: state.worker_groups.remove(group.name),
    workers=_workers,
)
