"""Templates of roles, filled in as Ansible does, for a pool of two hosts."""

from __future__ import annotations

from typing import Any

from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader
from ansible.template import Templar, trust_as_template
from role_files import ROLES, load

POOL: dict[str, Any] = {
    "ansible_managed": "Managed by Ansible",
    "inventory_hostname": "w1",
    "groups": {"xmpp_servers": ["srv"], "managers": ["srv"], "workers": ["w1"]},
    "hostvars": {"srv": {"ansible_host": "192.0.2.1"}},
    "kestrel_domain": "pool.example.org",
    "kestrel_ca_certificate": "a certificate",
    "kestrel_users": [{"name": "ada", "admin": True}, {"name": "bob"}],
    "vault_kestrel_component_secret": "secret",
    "vault_kestrel_worker_passwords": {"w1": "secret"},
    "vault_kestrel_user_passwords": {"ada": "secret", "bob": "secret"},
    "vault_kestrel_ca_key": "secret",
    "vault_grafana_admin_password": "secret",
}

init_plugin_loader()


def values_of(role: str) -> dict[str, Any]:
    """Return the variables of the pool and of a role, templates as they are written."""
    values = {**POOL, "role_name": role, "role_path": str(ROLES / role)}
    for part in ("defaults", "vars"):
        values |= load(ROLES / role / part / "main.yml")
    return values


def render(template: str, values: dict[str, Any]) -> Any:
    """Fill a template in.

    Raises:
        AnsibleError: it needs what is not among the values.
    """
    templar = Templar(loader=DataLoader(), variables=_trusted(values))
    return templar.template(trust_as_template(template), preserve_trailing_newlines=True)


def _trusted(value: Any) -> Any:
    if isinstance(value, str):
        return trust_as_template(value)
    if isinstance(value, dict):
        return {key: _trusted(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_trusted(each) for each in value]
    return value
