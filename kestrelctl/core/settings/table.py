"""All kinds of settings, in the order in which a start takes them in."""

from __future__ import annotations

from kestrelctl.core.model.setting import Setting
from kestrelctl.core.settings.flock_rules import FLOCK_RULES
from kestrelctl.core.settings.groups_of_workers import WORKER_GROUPS
from kestrelctl.core.settings.kind import AnyKind
from kestrelctl.core.settings.policies import POLICIES
from kestrelctl.core.settings.pool_assets import POOL_ASSETS
from kestrelctl.core.settings.user_groups import USER_GROUPS

KINDS: tuple[AnyKind, ...] = (POLICIES, POOL_ASSETS, USER_GROUPS, FLOCK_RULES, WORKER_GROUPS)

BY_STRUCT: dict[type[Setting], AnyKind] = {kind.struct: kind for kind in KINDS}
BY_WANTED: dict[type, AnyKind] = {kind.wanted: kind for kind in KINDS}
