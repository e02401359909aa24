"""What playbooks do on the machine that they are started from, which is somebody's own."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from role_files import PLAYBOOKS, ROLES, load
from templating import render

POOL = {
    "kestrel_domain": "pool.example.org",
    "kestrel_users": [{"name": "ada", "admin": True}, {"name": "bob"}],
    "kestrel_ca_certificate": "a certificate",
    "vault_kestrel_user_passwords": {"ada": "s3cret"},
}


def client(directory: Path, name: str, **given: Any) -> subprocess.CompletedProcess[str]:
    """Make a context for the pool of an inventory of that name."""
    inventory = directory / name
    inventory.mkdir()
    groups = {group: {"hosts": {"srv": {}}} for group in ("xmpp_servers", "managers", "workers")}
    pool = {"all": {"vars": POOL, "children": groups}}
    (inventory / "hosts.json").write_text(json.dumps(pool))
    return subprocess.run(
        [
            *(str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(inventory)),
            *(str(PLAYBOOKS / "client.yml"), "-e", json.dumps(given)),
        ],
        cwd=directory,
        env={
            **os.environ,
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_ROLES_PATH": str(ROLES),
            "COLUMNS": "1000",
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_context_is_called_as_the_inventory_is_with_its_dots(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir(mode=0o755)
    done = client(tmp_path, "pool.example.org", client_directory="own")
    assert done.returncode == 0, done.stdout + done.stderr
    contexts = tomllib.loads((own / "config.toml").read_text())["context"]
    assert list(contexts) == ["pool.example.org"]
    assert contexts["pool.example.org"]["jid"] == "ada@users.pool.example.org"
    assert stat.S_IMODE(own.stat().st_mode) == 0o755, "it is somebody's, as it is"
    password = own / "pool.example.org-ada.password"
    assert stat.S_IMODE(password.stat().st_mode) == 0o600


def test_a_name_that_no_context_may_have_is_refused(tmp_path: Path) -> None:
    done = client(tmp_path, "my pool", client_directory=str(tmp_path / "own"))
    assert done.returncode != 0
    assert "my pool cannot be the name of a context" in done.stdout
    assert not (tmp_path / "own").exists()


def test_a_context_of_that_name_that_is_somebodys_own_stays(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    config = own / "config.toml"
    config.write_text('[context.mine]\njid = "ada@example.org"\n')
    config.chmod(0o600)
    done = client(tmp_path, "mine", client_directory=str(own))
    assert done.returncode != 0
    assert "twice" in done.stdout
    assert config.read_text() == '[context.mine]\njid = "ada@example.org"\n'
    done = client(tmp_path, "another", client_directory=str(own))
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(tomllib.loads(config.read_text())["context"]) == ["another", "mine"]
    assert stat.S_IMODE(config.stat().st_mode) == 0o600


def test_somebody_who_has_no_password_yet_is_told_so(tmp_path: Path) -> None:
    done = client(tmp_path, "mine", client_directory=str(tmp_path / "own"), client_user="bob")
    assert done.returncode != 0
    assert "bob has no password yet" in done.stdout


@pytest.mark.parametrize("there", [False, True])
def test_a_directory_for_backups_that_is_there_is_left_as_it_is(
    there: bool, tmp_path: Path
) -> None:
    directory = tmp_path / "backups"
    if there:
        directory.mkdir()
    [play] = load(PLAYBOOKS / "backup.yml")
    [makes] = [each for each in play["tasks"] if "ansible.builtin.file" in each]
    given = {"__backup_directory": str(directory)}
    assert render(f"{{{{ {makes['when']} }}}}", given) is not there


def test_a_backup_is_private_before_there_is_anything_in_it() -> None:
    [copies] = load(ROLES / "manager/tasks/backup.yml")
    names = [next(key for key in each if key.startswith("ansible.")) for each in copies["block"]]
    fetches = names.index("ansible.builtin.fetch")
    private = copies["block"][fetches - 1]["ansible.builtin.file"]
    assert (private["state"], private["mode"]) == ("touch", "0600")
    assert private["path"] == copies["block"][fetches]["ansible.builtin.fetch"]["dest"]


@pytest.mark.parametrize(
    ("playbook", "given", "variable"),
    [
        ("client", "client_directory", "directory"),
        ("backup", "backup_directory", "__backup_directory"),
        ("wheelhouse", "wheelhouse", "__wheelhouse_directory"),
    ],
)
def test_a_directory_is_the_one_that_the_caller_sees(
    playbook: str, given: str, variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Modules run in the directory of the playbook, and know nothing of where it was called."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    [play] = [
        each for each in load(PLAYBOOKS / f"{playbook}.yml") if variable in each.get("vars", ())
    ]
    for name, means in (
        ("here", "here"),
        ("~/there", "home/there"),
        ("/srv/wheels", "/srv/wheels"),
    ):
        found = render(f"{{{{ {variable} }}}}", {**play["vars"], "playbook_dir": "/", given: name})
        assert found == str(tmp_path / means)
