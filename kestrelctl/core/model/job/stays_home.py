"""Tasks that never go to another pool of the flock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kestrelctl.core.model.files import output_addresses, parent_files, workdir
from kestrelctl.core.model.job import channel_rules, checkpoint_rules, guest, task_environment

if TYPE_CHECKING:
    from kestrelctl.core.model.job.spec import JobSpec

#: The tags of what a task cannot have at another pool, which lends its workers without them: a
#: directory of its user's choice, files of other tasks of his, a channel to him, checkpoints, a
#: shared file system, an environment of a class.
HOME_TAGS = frozenset(
    (
        guest.TAG,
        workdir.TAG,
        parent_files.TAG,
        channel_rules.TAG,
        checkpoint_rules.TAG,
        output_addresses.FILE_TAG,
        *map(task_environment.tag_of, task_environment.KINDS),
    )
)


def stays_home(spec: JobSpec) -> bool:
    """Whether tasks of a job never go to a neighbour.

    Guests are not lent on: whoever lends a machine knows whose tasks run there, and no task travels
    in a circle. Copies of a service would hold what is lent for a while only, and members of one
    program must find each other, which they cannot from pool to pool.
    """
    return spec.stays or spec.guest is not None or spec.service or spec.span > 1
