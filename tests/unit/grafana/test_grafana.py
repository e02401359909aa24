"""Dashboards go to a Grafana server and come back; what it refuses is said plainly."""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_fake_pool import FakePool, run
from click.testing import Result
from grafana_double import TOKEN, GrafanaDouble, Stored, running

from kestrelctl.checkout import own_version
from kestrelctl.grafana import push
from kestrelctl.grafana.board import fingerprint, read_boards

PANEL = {
    "id": 1, "type": "timeseries", "title": "Tasks",
    "datasource": {"type": "prometheus", "uid": "${datasource}"},
    "targets": [
        {"refId": "A", "expr": 'up{instance=~"$manager"}[$__rate_interval]'}
    ],
    "links": [{"title": "More", "url": "/d/x"}],
}  # fmt: skip
BOARD: dict[str, Any] = {
    "uid": "kestrel-overview", "title": "Overview", "tags": ["kestrel"], "version": 1,
    "refresh": "30s", "time": {"from": "now-1h", "to": "now"}, "panels": [PANEL],
    "templating": {"list": [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "current": {}},
        {"name": "manager", "type": "query", "query": "x", "definition": "x", "allValue": ".*",
         "refresh": 2, "current": {"text": ["All"], "value": ["$__all"]}},
    ]},
    "annotations": {"list": [
        {"name": "Alerts", "builtIn": 1, "enable": True, "expr": "x"},
        {"name": "Off", "enable": False},
    ]},
}  # fmt: skip
UID = "kestrel-overview"

Call = Callable[..., Result]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A directory with two dashboards."""
    directory = tmp_path / "boards"
    directory.mkdir()
    (directory / "overview.json").write_text(json.dumps(BOARD, indent=2) + "\n")
    second = {"uid": "kestrel-second", "title": "Second", "panels": []}
    (directory / "second.json").write_text(json.dumps(second))
    return directory


@pytest.fixture
def grafana() -> Iterator[GrafanaDouble]:
    double = GrafanaDouble()
    with running(double):
        yield double


@pytest.fixture
def call(grafana: GrafanaDouble, files: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs `kestrelctl dashboards` against the double; no token ever shows in what is printed."""

    def call(verb: str, *words: str, url: str = grafana.url, token: str = TOKEN) -> Result:
        monkeypatch.setenv("GRAFANA_TOKEN", token)
        options = ("--url", url, "--directory", str(files))
        result = run(FakePool(), "-v", "dashboards", verb, *options, *words)
        assert not token or token not in result.output
        assert TOKEN not in result.output
        return result

    return call


def states(result: Result) -> dict[str, str]:
    """The last columns of what was done: uid -> state."""
    assert result.exit_code == 0, result.stderr
    rows = [line.split() for line in result.stdout.splitlines()[1:]]
    return {row[1]: row[0] for row in rows}


def error(result: Result) -> str:
    """The three lines of an error, without the traceback that -v shows before them."""
    return result.stderr[result.stderr.index("error: ") :]


# -- push ------------------------------------------------------------------------------------------


def test_push_creates_then_finds_nothing_to_do_then_updates(
    call: Call, grafana: GrafanaDouble, files: Path
) -> None:
    assert states(call("push")) == {UID: "created", "kestrel-second": "created"}
    stored = grafana.dashboards[UID]
    assert stored.folder == "kst"
    mark = f"kestrelctl {own_version()} dashboards push, content {fingerprint(BOARD)}"
    assert stored.history == [("sa-kestrel", mark)]
    grafana.asked.clear()
    assert states(call("push")) == {UID: "unchanged", "kestrel-second": "unchanged"}
    assert grafana.writes() == []
    (files / "overview.json").write_text(json.dumps({**BOARD, "title": "Better"}))
    assert states(call("push")) == {UID: "updated", "kestrel-second": "unchanged"}
    assert grafana.dashboards[UID].version == 2
    assert grafana.dashboards[UID].model["title"] == "Better"


def test_push_takes_only_what_is_named_by_file_or_uid(call: Call) -> None:
    assert states(call("push", "overview", UID)) == {UID: "created"}
    assert states(call("push", "kestrel-second")) == {"kestrel-second": "created"}


def test_a_dry_run_says_what_would_be_done_and_does_nothing(
    call: Call, grafana: GrafanaDouble
) -> None:
    grafana.folders.clear()
    result = call("push", "--dry-run", "--create-folder")
    assert states(result)[UID] == "created"
    assert "would create the folder Kestrel" in result.stderr
    assert "nothing was pushed" in result.stderr
    assert (grafana.writes(), grafana.folders) == ([], {})


@pytest.mark.parametrize("new_style", [False, True], ids=["versions as list", "as object"])
def test_what_was_edited_in_grafana_is_not_overwritten_unless_forced(
    call: Call, grafana: GrafanaDouble, files: Path, new_style: bool
) -> None:
    grafana.new_style = new_style
    call("push")
    grafana.edit(UID, title="Mine")
    (files / "second.json").write_text(json.dumps({"uid": "kestrel-second", "title": "New"}))
    for words in ((), ("--dry-run",)):
        result = call("push", *words)
        assert result.exit_code == 1
        assert error(result) == (
            "error: 1 dashboard is newer in Grafana than here; nothing was pushed\n"
            "cause: kestrel-overview: version 2 was saved by ada, not by a push\n"
            "hint: kestrelctl dashboards diff, then pull to keep it or push --force to lose it\n"
        )
    assert grafana.dashboards["kestrel-second"].version == 1, "nothing at all was pushed"
    assert states(call("push", "--force")) == {UID: "updated", "kestrel-second": "updated"}
    assert grafana.dashboards[UID].model["title"] == "Overview"
    assert states(call("push"))[UID] == "unchanged"


def test_an_edit_that_the_history_does_not_show_yet_is_not_overwritten(
    call: Call, grafana: GrafanaDouble, files: Path
) -> None:
    call("push")
    history = grafana.answer("GET", f"/api/dashboards/uid/{UID}/versions", {}, None)
    grafana.edit(UID, title="Mine")
    (files / "overview.json").write_text(json.dumps({**BOARD, "title": "Better"}))
    for answer in (history, (200, []), (404, {"message": "Not found"})):
        grafana.refusals["GET", f"/api/dashboards/uid/{UID}/versions"] = answer
        result = call("push")
        assert result.exit_code == 1
        assert "cause: kestrel-overview: version 2 was saved, not by a push\n" in error(result)


def test_what_a_newer_kestrelctl_pushed_is_not_overwritten(
    call: Call, grafana: GrafanaDouble
) -> None:
    message = f"kestrelctl 99.0.0 dashboards push, content {'0' * 16}"
    grafana.dashboards[UID] = Stored({"uid": UID, "title": "x"}, "kst", False, [("sa", message)])
    result = call("push", "overview")
    assert result.exit_code == 1
    assert "pushed by kestrelctl 99.0.0, and this is" in error(result)
    grafana.dashboards[UID].history = [("sa", message.replace("99.0.0", "0.0.1"))]
    assert states(call("push", "overview")) == {UID: "updated"}


def test_a_dashboard_that_the_server_stores_in_a_form_of_its_own_is_unchanged(
    call: Call, grafana: GrafanaDouble
) -> None:
    call("push")
    grafana.dashboards[UID].model["schemaVersion"] = 42
    assert states(call("push"))[UID] == "unchanged"


def test_a_dashboard_that_was_moved_comes_back_to_its_folder(
    call: Call, grafana: GrafanaDouble
) -> None:
    call("push")
    grafana.dashboards[UID].folder = "elsewhere"
    assert states(call("push"))[UID] == "updated"
    assert grafana.dashboards[UID].folder == "kst"


def test_an_edit_between_the_look_and_the_save_is_not_lost(
    call: Call, grafana: GrafanaDouble, files: Path
) -> None:
    call("push")
    (files / "overview.json").write_text(json.dumps({**BOARD, "title": "Better"}))
    grafana.before_save = lambda: grafana.edit(UID, title="Mine")
    result = call("push")
    assert result.exit_code == 1
    assert "somebody has just saved another version" in error(result)
    assert grafana.dashboards[UID].model["title"] == "Mine"


def test_a_dashboard_from_a_file_of_the_server_is_not_pushed(
    call: Call, grafana: GrafanaDouble
) -> None:
    grafana.dashboards[UID] = Stored({"uid": UID, "title": "x"}, "kst", True, [("", "")])
    result = call("push", "overview", "--force")
    assert result.exit_code == 1
    assert "from a file of its own" in error(result)


def test_the_folder_is_found_by_title_or_uid_and_made_on_request(
    call: Call, grafana: GrafanaDouble
) -> None:
    assert call("push", "--folder", "kst").exit_code == 0
    result = call("push", "--folder", "My Pool")
    assert result.exit_code == 7
    assert error(result).startswith("error: Grafana has no folder 'My Pool'")
    assert call("push", "--folder", "My Pool", "--create-folder").exit_code == 0
    assert grafana.folders["my-pool"] == "My Pool"
    assert {stored.folder for stored in grafana.dashboards.values()} == {"my-pool"}
    grafana.folders["other"] = "My Pool"
    result = call("push", "--folder", "My Pool")
    assert result.exit_code == 2
    assert "cause: uids: my-pool, other" in error(result)


# -- pull and diff ---------------------------------------------------------------------------------


def test_pull_after_push_changes_no_file(call: Call, files: Path) -> None:
    before = {file.name: file.read_bytes() for file in files.iterdir()}
    call("push")
    assert states(call("pull")) == {UID: "unchanged", "kestrel-second": "unchanged"}
    assert {file.name: file.read_bytes() for file in files.iterdir()} == before


def test_pull_keeps_an_edit_and_push_then_has_nothing_to_do(
    call: Call, grafana: GrafanaDouble, files: Path
) -> None:
    call("push")
    grafana.edit(UID, title="Mine", description="new")
    assert states(call("pull"))[UID] == "updated"
    model = json.loads((files / "overview.json").read_text())
    assert list(model) == [*(key for key in BOARD if key != "version"), "description"]
    assert (model["title"], model["panels"]) == ("Mine", BOARD["panels"])
    assert list(model["panels"][0]) == list(PANEL)
    assert states(call("push"))[UID] == "unchanged"


def test_pull_into_an_empty_directory_gives_what_was_pushed(
    call: Call, files: Path, tmp_path: Path
) -> None:
    call("push")
    (empty := tmp_path / "empty").mkdir()
    result = call("pull", "--directory", str(empty))
    assert states(result) == {UID: "created", "kestrel-second": "created"}
    pulled = {board.uid: board.model for board in read_boards(empty)}
    assert pulled == {board.uid: board.model for board in read_boards(files)}


def test_pull_of_a_name_fetches_that_alone(call: Call, grafana: GrafanaDouble) -> None:
    call("push")
    assert states(call("pull", "second")) == {"kestrel-second": "unchanged"}
    result = call("pull", "nonsense")
    assert result.exit_code == 7
    assert "cannot read the dashboard nonsense of" in error(result)
    grafana.dashboards["x/../y"] = Stored({"uid": "x/../y", "title": ""}, "kst", False, [("", "")])
    grafana.refusals["GET", "/api/dashboards/uid/x/../y"] = (200, {"dashboard": {}, "meta": {}})
    assert "it is no uid of Grafana's" in error(call("pull"))


def test_diff_shows_what_a_push_would_change_and_ends_with_1(
    call: Call, grafana: GrafanaDouble
) -> None:
    call("push")
    result = call("diff")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "2 dashboards, no difference\n"
    grafana.edit(UID, title="Mine")
    result = call("diff")
    assert result.exit_code == 1
    assert result.stdout.startswith("--- grafana/kestrel-overview\n+++ here/kestrel-overview\n")
    assert '-  "title": "Mine",\n+  "title": "Overview",\n' in result.stdout
    assert call("diff", "-o", "quiet").stdout == f"{UID}\n"
    found = json.loads(call("diff", "-o", "json").stdout)
    assert [(each["uid"], each["differs"]) for each in found] == [
        (UID, True), ("kestrel-second", False),
    ]  # fmt: skip
    del grafana.dashboards["kestrel-second"]
    result = call("diff", "second")
    assert result.exit_code == 1
    assert '+  "uid": "kestrel-second"' in result.stdout


# -- snapshot --------------------------------------------------------------------------------------


def frame(values: list[Any], *, times: tuple[int, ...] = (1000, 2000), **labels: str) -> Any:
    """One series, as /api/ds/query gives it."""
    value = {"name": "Value", "type": "number", "labels": labels, "config": {}}
    fields = [{"name": "Time", "type": "time"}, value]
    return {"schema": {"refId": "A", "fields": fields}, "data": {"values": [list(times), values]}}


def test_a_snapshot_holds_the_data_and_asks_for_nothing(call: Call, grafana: GrafanaDouble) -> None:
    series = frame([1.0, 2.0], instance="m1")
    grafana.results['up{instance=~".*"}[$__rate_interval]'] = [series]
    call("push")
    result = call("snapshot", "overview", "--expires", "1h", "--since", "30m", "-o", "json")
    assert result.exit_code == 0, result.stderr
    (made,) = json.loads(result.stdout)
    assert made["url"] == f"{grafana.url}/dashboard/snapshot/key1"
    assert made["delete_url"].endswith("/api/snapshots-delete/dkey1")
    (body,) = grafana.snapshots
    assert (body["name"], body["expires"]) == ("Overview", 3600)
    model = body["dashboard"]
    (panel,) = model["panels"]
    assert panel["datasource"] == {"type": "grafana", "uid": "grafana"}
    assert panel["targets"] == [
        {
            "refId": "A", "datasource": panel["datasource"], "queryType": "snapshot",
            "snapshot": [series],
        }
    ]  # fmt: skip
    assert model["time"] == {"from": "1970-01-12T13:16:40.000Z", "to": "1970-01-12T13:46:40.000Z"}
    assert (model["refresh"], panel["links"]) == ("", [])
    assert model["annotations"]["list"] == [
        {"name": "Alerts", "enable": True, "builtIn": 1, "snapshotData": []}
    ]
    assert "x" not in [variable["query"] for variable in model["templating"]["list"]]
    (asked,) = [body for _, path, body in grafana.asked if path == "/api/ds/query"]
    assert asked is not None
    assert (asked["from"], asked["to"]) == ("998200000", "1000000000")
    assert asked["queries"][0]["datasource"] == {"type": "prometheus", "uid": "p1"}


def test_a_table_and_a_heat_map_are_made_of_series_as_panels_take_them(
    call: Call, grafana: GrafanaDouble, files: Path
) -> None:
    def panel(format_: str) -> dict[str, Any]:
        return {"id": 1, "targets": [{"refId": "A", "expr": format_, "format": format_}]}

    row = {"type": "row", "panels": [panel("heatmap")]}
    board = {"uid": UID, "title": "x", "panels": [panel("table"), row, {"type": "text"}]}
    (files / "overview.json").write_text(json.dumps(board))
    grafana.results["table"] = [
        frame([1.0], times=(9,), worker="w1"), frame([2.0], times=(9,), host="h", worker="w2"),
    ]  # fmt: skip
    grafana.results["heatmap"] = [
        frame([9.0, 9.0], le="+Inf"), frame([3.0, None], le="10"), frame([1.0, 2.0], le="0.5"),
    ]  # fmt: skip
    call("push")
    assert call("snapshot", "overview", "--datasource", "mine").exit_code == 0
    table, folded, _text = grafana.snapshots[0]["dashboard"]["panels"]
    (rows,) = table["targets"][0]["snapshot"]
    assert [each["name"] for each in rows["schema"]["fields"]] == [
        "Time",
        "worker",
        "host",
        "Value",
    ]
    assert rows["data"]["values"] == [[9, 9], ["w1", "w2"], ["", "h"], [1.0, 2.0]]
    (buckets,) = folded["panels"][0]["targets"][0]["snapshot"]
    assert [each["name"] for each in buckets["schema"]["fields"]] == ["Time", "0.5", "10", "+Inf"]
    assert buckets["data"]["values"] == [[1000, 2000], [1.0, 2.0], [2.0, 0.0], [6.0, 9.0]]
    assert buckets["schema"]["meta"]["type"] == "heatmap-rows"
    assert not any(path == "/api/frontend/settings" for _, path, _ in grafana.asked)


def test_a_panel_that_cannot_be_queried_makes_no_snapshot(
    call: Call, grafana: GrafanaDouble
) -> None:
    call("push")
    answer = {"results": {"A": {"status": 400, "error": "parse error"}}}
    grafana.refusals["POST", "/api/ds/query"] = (207, answer)
    result = call("snapshot", "overview")
    assert result.exit_code == 1
    assert error(result) == "error: the panel 'Tasks' cannot be queried\ncause: parse error\n"
    grafana.refusals["POST", "/api/ds/query"] = (500, {"message": "An error occurred"})
    assert "cause: 500: An error occurred" in error(call("snapshot", "overview"))
    grafana.refusals["GET", "/api/frontend/settings"] = (200, {"datasources": {}})
    assert call("snapshot", "overview").exit_code == 7
    assert grafana.snapshots == []


# -- what goes wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "answer", "status", "says"),
    [
        (("GET", "/api/search"), (401, {"message": "Invalid API key"}), 4, "not take the token"),
        (("GET", "/api/search"), (403, {"message": "No rights"}), 4, "the token may not look for"),
        (
            ("POST", "/api/dashboards/db"),
            (403, {"message": "Access denied to save dashboard"}),
            4,
            "the token may not save the dashboard kestrel-overview in",
        ),
        (
            ("POST", "/api/dashboards/db"),
            (412, {"status": "name-exists", "message": "The same name exists"}),
            1,
            "cause: 412: The same name exists",
        ),
        (("GET", "/api/search"), (502, "<html>bad gateway</html>"), 1, "cause: 502: <html>bad"),
        (("GET", "/api/search"), (200, {"odd": 1}), 5, "there is no Grafana at"),
        (("GET", "/api/search"), "<html>log in</html>", 5, "there is no Grafana at"),
        (("GET", "/api/health"), "<html>welcome</html>", 5, "its /api/health is none of Grafana's"),
        (("GET", "/api/health"), (200, {"status": "UP"}), 5, "there is no Grafana at"),
        (("GET", "/api/health"), (404, "not here"), 5, "cause: /api/health: 404 not here"),
        (("GET", "/api/health"), (302, "http://127.0.0.1:1/login"), 5, "it sends on to http://127"),
    ],
)
def test_a_refusal_is_said_plainly(
    call: Call, grafana: GrafanaDouble, place: tuple[str, str], answer: Any, status: int, says: str
) -> None:
    grafana.refusals[place] = answer
    result = call("push", "overview")
    assert result.exit_code == status, result.stderr
    assert says in error(result)
    assert "Error(" not in error(result) or status == 5


def test_a_wrong_token_is_not_taken_and_not_shown(call: Call) -> None:
    result = call("push", token="glsa_stolen")
    assert result.exit_code == 4
    assert error(result).splitlines()[1:] == [
        "cause: Invalid API key",
        "hint: make a new token of a service account; they expire",
    ]
    result = call("push", "-o", "json", token="glsa_stolen")
    assert json.loads(result.stderr.splitlines()[-1])["error"]["code"] == "not-allowed"


def test_the_token_is_read_from_a_file_before_the_environment(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert call("push", "--token-file", str(file), token="wrong").exit_code == 0
    result = call("push", "--token-file", str(tmp_path / "none"))
    assert result.exit_code == 2
    assert error(result).startswith("error: the token cannot be read\n")


@pytest.mark.parametrize("token", ["", "two words", "bad\x07bell", "schlüssel"])
def test_what_is_no_token_is_not_sent(call: Call, grafana: GrafanaDouble, token: str) -> None:
    assert call("push", token=token).exit_code == 2
    assert grafana.asked == []


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "--url is empty"),
        ("grafana.example.org", "not an address of a web server"),
        ("ftp://grafana.example.org", "not an address of a web server"),
        ("http://grafana.example.org", "without encryption"),
        ("http://127.0.0.1.example.org:3000", "without encryption"),
        ("https://ada:secret@grafana.example.org", "holds more than scheme"),
        ("https://ada:secret@grafana.example.org:port", "not an address of a web server"),
        ("https://grafana.example.org/?verify=false", "holds more than scheme"),
    ],
)
def test_an_address_that_is_wrong_or_open_is_refused(call: Call, url: str, says: str) -> None:
    result = call("push", url=url)
    assert result.exit_code == 2
    assert says in error(result)
    assert "secret" not in error(result).replace("a secret there", "")


def test_a_server_under_a_path_is_found_there(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAFANA_TOKEN", TOKEN)
    double = GrafanaDouble()
    with running(double, "/grafana") as url:
        for address in (url, f"{url}/"):
            words = ("push", "--url", address, "--directory", str(files))
            assert run(FakePool(), "dashboards", *words).exit_code == 0
        root = url.removesuffix("/grafana")
        words = ("push", "--url", root, "--directory", str(files))
        result = run(FakePool(), "dashboards", *words)
    assert result.exit_code == 5
    assert "hint: --url with the path" in result.stderr


def test_plain_http_goes_through_no_proxy(grafana: GrafanaDouble, files: Path) -> None:
    # The library looks for proxies once in a process.
    environment = {name: text for name, text in os.environ.items() if name.lower() != "no_proxy"}
    environment |= {
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "GRAFANA_TOKEN": TOKEN,
        "http_proxy": "http://127.0.0.1:1",
    }
    words = ("dashboards", "push", "--url", grafana.url, "--directory", str(files))
    done = subprocess.run(
        [sys.executable, "-m", "kestrelctl", *words],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_a_server_that_is_not_there_or_says_nothing(call: Call) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        result = call("push", "--timeout", "0.2", url=url)
        assert result.exit_code == 6
        assert error(result).startswith(f"error: the Grafana at {url} did not answer in time\n")
    result = call("push", url=url)
    assert result.exit_code == 5
    assert error(result) == (
        f"error: the Grafana at {url} cannot be reached\n"
        f"cause: Connection refused\nhint: curl {url}/api/health\n"
    )


def test_a_certificate_is_checked_and_may_be_vouched_for(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    double = GrafanaDouble()
    with running(double, context=context) as url:
        result = call("push", url=url)
        assert double.asked == []
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
        assert states(call("push", url=url))[UID] == "created"
    assert result.exit_code == 5
    assert error(result).startswith(f"error: there is no safe connection to {url}\n")
    assert "certificate" in error(result).splitlines()[1]
    assert "REQUESTS_CA_BUNDLE" in error(result)


def test_without_grafana_client_it_is_said_what_to_install(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "grafana_client.api", None)
    result = call("push")
    assert result.exit_code == 9
    assert re.search("hint: .* install grafana-client\n", error(result))


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not JSON"),
        ("[]", "it has no uid"),
        ('{"title": "x"}', "it has no uid"),
        (json.dumps({"uid": UID}), f"two dashboards have the uid {UID}"),
    ],
)
def test_a_file_that_is_no_dashboard_is_named(
    call: Call, files: Path, text: str, says: str
) -> None:
    (files / "third.json").write_text(text)
    result = call("push")
    assert result.exit_code == 2
    assert says in error(result)
    assert "third.json" in error(result)


def test_a_dashboard_or_directory_that_is_not_there(call: Call, tmp_path: Path) -> None:
    result = call("push", "overvew")
    assert result.exit_code == 7
    assert "cause: known: overview, second" in error(result)
    assert call("push", "--directory", str(tmp_path / "none")).exit_code == 2


def test_the_dashboards_of_the_checkout_are_the_usual_ones() -> None:
    from kestrelctl.grafana.board import usual_directory

    assert usual_directory() == Path(__file__).parents[3] / "dashboards"
    assert UID in [board.uid for board in read_boards(usual_directory())]


def test_a_development_version_comes_before_its_release() -> None:
    ordered = ["0.1.0", "0.2.0.dev0", "0.2.0", "0.3.0.dev0+g1a2b3c4d5", "0.3.0"]
    assert sorted(reversed(ordered), key=push._order) == ordered
    assert push._order("0.3.0.dev0+g1a2b3c4d5") == push._order("0.3.0.dev0+gffffffff9.dirty")
