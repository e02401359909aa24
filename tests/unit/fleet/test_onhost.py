"""What the program that collects a bundle on a host takes, and what it blacks out."""

from __future__ import annotations

import base64
import json
import os
import sqlite3
import zlib
from pathlib import Path

import msgspec
import pytest

from kestrelctl.cli.submit.export import exported
from kestrelctl.fleet.bundle import Collected
from kestrelctl.fleet.onhost import (
    BLACK,
    Collection,
    assigned_in,
    black_out,
    row_counts,
    secrets_in,
)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('component_secret = "hunter2 x"', f"component_secret = {BLACK}"),
        ("admin_password: hunter2", f"admin_password: {BLACK}"),
        ("  password: hunter 2, two", f"  password: {BLACK}"),
        ("- credentials: hunter2", f"- credentials: {BLACK}"),
        ('{"token": "hunter2", "n": 1}', f'{{"token": {BLACK}, "n": 1}}'),
        ('["password"] = "hunter2";', f'["password"] = {BLACK};'),
        ("Environment=GF_ADMIN_PASSWORD=hunter2", f"Environment=GF_ADMIN_PASSWORD={BLACK}"),
        (
            'Environment="AWS_SECRET_ACCESS_KEY=hunter2"',
            f'Environment="AWS_SECRET_ACCESS_KEY={BLACK}',
        ),
        ('Environment="DB_PASSWORD=hunter, two"', f'Environment="DB_PASSWORD={BLACK}'),
        ('Environment=A=1 B_TOKEN=hunter2 "C_KEY=hunter 2"', f"Environment=A=1 B_TOKEN={BLACK}"),
        ("kestrelctl worker join hunter2 --name w1", f"kestrelctl worker join {BLACK} --name w1"),
        ("x --password hunter2 y", f"x --password {BLACK} y"),
        ("http://ada:hunter2@example.org/", f"http://ada:{BLACK}@example.org/"),
        ("Authorization: Bearer hunter2hunter2", f"Authorization: Bearer {BLACK}"),
    ],
)
def test_what_looks_like_a_secret_is_blacked_out(line: str, expected: str) -> None:
    assert black_out(line, set()) == expected


@pytest.mark.parametrize(
    "name",
    ["DB_PASS", "db_password", "AUTH", "PROXY_AUTH", "CARD_PIN", "GIT_PAT", "SESSION_COOKIE",
     "PRIVATE_KEY", "MY_PWD", "API_TOKEN", "SECRET_OF_ALL", "CREDENTIALS"],
)  # fmt: skip
def test_a_variable_that_is_not_exported_is_not_bundled_either(name: str) -> None:
    assert exported(["ALL"], {name: "hunter2"}).kept_back == (name,)
    assert black_out(f"Environment=A=1 {name}=hunter2", set()) == f"Environment=A=1 {name}={BLACK}"


@pytest.mark.parametrize(
    "line",
    [
        "Environment=SPINNER=on",
        'password_file = "lab.password"',
        'password_hash = "SHA-256"',
        "LoadCredential=component.secret:/etc/kestrel/component.secret",
        "Environment=KESTREL_INHERIT=AWS_SECRET_ACCESS_KEY,LICENSE_KEY",
        "2026-01-01 the server refused the credentials: not-authorized",
        "12 tasks done in 3 s",
    ],
)
def test_text_without_secrets_stays_as_it_is(line: str) -> None:
    assert black_out(line, set()) == line


def test_a_private_key_is_blacked_out_even_if_its_end_is_missing() -> None:
    key = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQ\n-----END EC PRIVATE KEY-----"
    assert black_out(f"a\n{key}\nb", set()) == f"a\n{BLACK}\nb"
    assert black_out("a\n-----BEGIN PRIVATE KEY-----\nMHcCAQ\n", set()) == f"a\n{BLACK}"


def test_secrets_are_the_lines_of_a_file_and_the_last_words_of_them() -> None:
    assert secrets_in("w1@workers.example.org pa55word\n") == {
        "pa55word",
        "w1@workers.example.org pa55word",
    }
    assert assigned_in('component_secret = "hunter2"\npassword = "password"\n') == {"hunter2"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The files of a host with a manager, a worker and a server."""
    for name, text in {
        "etc/kestrel/component.secret": "c0mponent\n",
        "etc/kestrel/worker.credentials": "w1@workers.example.org w0rkerpass\n",
        "etc/kestrel/config.toml": '[context.pool]\npassword_file = "admin.password"\n',
        "etc/prosody/kestrel-component.cfg.lua": 'component_secret = "c0mponent"\n',
        "etc/prosody/prosody.cfg.lua": '-- c0mponent\nturn_secret = "0ther-secret"\n',
        "etc/prometheus/prometheus.yml": "password: 0ther-secret\n# 0ther-secret\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_configuration_comes_without_secrets_and_secret_files_not_at_all(root: Path) -> None:
    found = Collection(str(root))
    found.learn_secrets()
    found.configuration()
    assert found.files == {
        "config/etc/kestrel/config.toml": '[context.pool]\npassword_file = "admin.password"\n',
        "config/etc/prosody/kestrel-component.cfg.lua": f"component_secret = {BLACK}\n",
        "config/etc/prosody/prosody.cfg.lua": f"-- {BLACK}\nturn_secret = {BLACK}\n",
        "config/etc/prometheus/prometheus.yml": f"password: {BLACK}\n# {BLACK}\n",
    }


def test_secrets_are_blacked_out_of_output_and_of_errors(root: Path) -> None:
    found = Collection(str(root))
    found.learn_secrets()
    found.command("said.txt", "echo", "the worker's is w0rkerpass")
    found.command("w0rkerpass", "/nonexistent/w0rkerpass")
    assert found.files == {"said.txt": f"the worker's is {BLACK}\n"}
    packed = json.loads(zlib.decompress(base64.b64decode(found.packed())))
    assert packed["files"] == found.files
    assert f"/nonexistent/{BLACK} is not there" in packed["failed"].values()
    assert "w0rkerpass" not in json.dumps(packed)


def test_of_much_output_the_end_is_kept_in_whole_lines() -> None:
    found = Collection()
    found.command("numbers.txt", "seq", "1000", limit_bytes=10)
    assert found.files["numbers.txt"] == "(the beginning is left out)\n999\n1000\n"


def test_a_command_that_fails_is_noted_beside_what_it_said() -> None:
    found = Collection()
    found.command("x.txt", "sh", "-c", "echo oops; exit 3")
    assert found.files == {"x.txt": "oops\n"}
    assert found.failed == {"x.txt": "sh ended with status 3"}


def database(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True)
    opened = sqlite3.connect(path)
    opened.execute("PRAGMA journal_mode = wal")
    opened.executescript(
        'CREATE TABLE jobs (id); INSERT INTO jobs VALUES (1), (2); CREATE TABLE "a b" (x)'
    )
    return opened


def test_rows_are_counted_in_a_database_that_is_in_use(tmp_path: Path) -> None:
    path = tmp_path / "var/lib/kestrel/manager/store.sqlite"
    opened = database(path)
    found = Collection(str(tmp_path))
    found.store()
    opened.close()
    store = json.loads(found.files["store.json"])
    assert store["rows"] == {"/var/lib/kestrel/manager/store.sqlite": {"jobs": 2, "a b": 0}}
    assert store["files"] == 3
    assert not found.failed


def test_databases_of_tasks_are_not_opened(tmp_path: Path) -> None:
    """One that is a pipe would be waited for, and a large one read in whole."""
    task = tmp_path / "var/lib/kestrel/worker/tasks/7"
    database(task / "results.db").close()
    found = Collection(str(tmp_path))
    found.store()
    store = json.loads(found.files["store.json"])
    assert store["rows"] == {}
    assert "/var/lib/kestrel/worker/tasks/7/results.db" in store["largest_bytes"]
    assert not found.failed


def test_a_name_that_is_no_text_does_not_spoil_what_a_host_sends() -> None:
    found = Collection()
    found.failed[os.fsdecode(b"/var/lib/kestrel/\xff")] = "it is not there"
    data = zlib.decompress(base64.b64decode(found.packed()))
    assert msgspec.json.decode(data, type=Collected).failed == {
        "/var/lib/kestrel/?": "it is not there"
    }


def test_counting_rows_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "m/store.sqlite"
    database(path).close()
    assert row_counts(str(path)) == {"jobs": 2, "a b": 0}
    assert list(path.parent.iterdir()) == [path]
