"""Names of files with numbers of jobs and tasks in them, as other systems write them."""

from __future__ import annotations

import re

#: Placeholders of a number there: `%j` and `%A_%a` in Slurm, `%{TASK_ID}` in HyperQueue,
#: `$(Process)` in HTCondor.
IN_FILE_NAMES = re.compile(r"%\d*[aAjJtsnNux]|%\{[A-Z_]+\}|\$\((?:Cluster|Process)(?:Id)?\)")
