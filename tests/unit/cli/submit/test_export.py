"""What of the submitter's environment goes along with a job."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_fake_pool import FakePool, run

from kestrelctl.cli.submit.export import exported
from kestrelctl.errors import UsageError
from kestrelctl.protocol.requests import SubmitJob


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    monkeypatch.setenv("MODE", "slow")
    monkeypatch.setenv("HF_TOKEN", "hush")


def environment_of(*words: str) -> dict[str, str]:
    pool = FakePool()
    result = run(pool, "submit", *words)
    assert result.exit_code == 0, result.stderr
    found = pool.last(SubmitJob).spec.program.env
    assert isinstance(found, dict)
    return found


def test_nothing_goes_along_unasked() -> None:
    assert environment_of("--", "ls") == {}


def test_what_is_named_goes_along() -> None:
    found = environment_of("--export", "OMP_NUM_THREADS,MODE", "--export", "HF_TOKEN", "--", "ls")
    assert found == {"OMP_NUM_THREADS": "4", "MODE": "slow", "HF_TOKEN": "hush"}


def test_what_is_said_wins_over_what_is_exported() -> None:
    words = ("--env", "MODE=fast", "--", "ls")
    assert environment_of("--export", "MODE", *words) == {"MODE": "fast"}
    assert environment_of("--export", "ALL", *words)["MODE"] == "fast"


def test_what_is_not_set_is_refused() -> None:
    with pytest.raises(UsageError, match="A, B are not set in your environment"):
        exported(["A,MODE", "B"], {"MODE": "slow"})


def test_a_value_is_not_taken_for_a_name() -> None:
    with pytest.raises(UsageError, match="names, not 'MODE=fast'") as found:
        exported(["MODE=fast"], {})
    assert found.value.hint == "write --env MODE=fast"


def test_a_value_that_is_no_text_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="ODD is not UTF-8"):
        exported(["ALL"], {"ODD": "\udcff", "MODE": "slow"})


def names(text: str) -> list[str]:
    return text.split()


SECRETS = names(
    "HF_TOKEN GITHUB_PAT API_KEY apikey MY_SECRET DB_PASSWORD PGPASSFILE MYSQL_PWD PASSWD "
    "GPG_AGENT_INFO AWS_PROFILE SSH_AUTH_SOCK GOOGLE_APPLICATION_CREDENTIALS KRB5CCNAME AUTH "
    "SSHPASS LDAP_BIND_PW CI_JOB_JWT"
)
OF_HERE = names(
    "PWD OLDPWD SHLVL _ HOSTNAME TERM TERM_PROGRAM XDG_RUNTIME_DIR DISPLAY KESTREL_POOL HOME USER "
    "KESTREL_TASK_ID SSH_CONNECTION TMUX_PANE INVOCATION_ID"
)
GOES_ALONG = names(
    "PATH LANG OMP_NUM_THREADS LD_LIBRARY_PATH PYTHONPATH VIRTUAL_ENV TERMINATION HOSTS MONTH "
    "COMPASS AUTHOR GHC_ROOT PINS _MODE"
)


def test_all_is_without_what_may_be_secret_and_what_is_true_only_here() -> None:
    found = exported(["ALL"], {name: "x" for name in (*SECRETS, *OF_HERE, *GOES_ALONG)})
    assert sorted(found.variables) == sorted(GOES_ALONG)
    assert found.kept_back == tuple(sorted(SECRETS))


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("postgres://ada:hush@db/x", True),
        ("http://proxy:3128", False),
        ("ftp://ada@example.org:21/", False),
    ],
    ids=["password", "port", "user"],
)
def test_an_address_with_a_password_is_kept_back(value: str, kept: bool) -> None:
    found = exported(["ALL"], {"URL": value})
    assert (found.kept_back == ("URL",)) is kept


def test_what_looks_secret_goes_along_with_all_if_it_is_named() -> None:
    found = exported(["ALL,HF_TOKEN"], {"HF_TOKEN": "hush", "API_KEY": "hush"})
    assert (found.variables, found.kept_back) == ({"HF_TOKEN": "hush"}, ("API_KEY",))


def test_what_is_kept_back_is_named_on_standard_error() -> None:
    result = run(FakePool(), "submit", "--export", "ALL", "--", "ls")
    assert "warning: not exported, as it may be secret: " in result.stderr
    assert "HF_TOKEN" in result.stderr
    assert "hush" not in result.stderr
    assert "HF_TOKEN" not in result.stdout


def test_an_environment_that_is_too_large_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"LARGE_{number}" for number in range(6)]
    for name in names:
        monkeypatch.setenv(name, "x" * 100_000)
    result = run(FakePool(), "submit", "--export", ",".join(names), "--", "ls")
    assert result.exit_code == 2
    assert "too large" in result.stderr
    assert "its environment alone takes" in result.stderr
    assert "export by name" in result.stderr


@pytest.mark.parametrize("said", ['"MODE"', '["MODE", "HF_TOKEN"]', '"MODE HF_TOKEN"', '"ALL"'])
def test_a_job_file_may_say_it(said: str, tmp_path: Path) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(f'command = ["ls"]\nexport = {said}\n')
    found = environment_of(str(file))
    assert found["MODE"] == "slow"
    assert ("HF_TOKEN" in found) is ("HF_TOKEN" in said)
