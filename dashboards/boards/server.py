"""The XMPP server and what is said over it; the manager's store and event loop."""

from __future__ import annotations

from grafana import MANAGER, Board, Query, Row, Variable
from panels import GREEN, ORANGE, RED, YELLOW, latency, stat, timeseries

from boards.words import UP, per_second, quantiles

_SERVER = 'job="kestrel-xmpp-server", instance=~"$server"'
_PROCESS = 'job="kestrel-manager", %m'
_DAY = 86400


def _kinds(counter: str, direction: str) -> Query:
    return per_second(counter, "kind", f'%m, direction="{direction}"')


BOARD = Board(
    "kestrel-server",
    "Kestrel: XMPP server and protocol",
    "The XMPP server, the messages of the manager over it, its store and its event loop.",
    [
        Row(
            "XMPP server",
            [
                stat(
                    "Manager's connection",
                    "short",
                    "Whether the manager is connected to the XMPP server.",
                    "min(kestrel_server_connected{%m})",
                    words={1: ("connected", GREEN), 0: ("GONE", RED)},
                ),
                stat(
                    "Its metrics",
                    "short",
                    "Whether Prometheus reaches the server's own page (mod_http_openmetrics).",
                    f"min(up{{{_SERVER}}})",
                    words=UP,
                ),
                stat(
                    "Certificate ends in",
                    "s",
                    "Time until the server's certificate ends. Workers refuse one that has.",
                    "min(max by (host) (kestrel_certificate_expiry_timestamp_seconds)) - time()",
                    ((None, RED), (2 * _DAY, ORANGE), (14 * _DAY, GREEN)),
                    no_value="no TLS",
                ),
                timeseries(
                    "Sessions",
                    "short",
                    "Client sessions by host of the server: workers, and users. Those that just "
                    "log in have none yet.",
                    Query(
                        f'sum by (host) (prosody_mod_c2s__connections{{{_SERVER}, host!=""}})',
                        "{{host}}",
                    ),
                ),
                timeseries(
                    "Time to answer Prometheus",
                    "s",
                    "Prosody does one thing at a time: a page that takes long means that messages "
                    "wait as long.",
                    Query(
                        f"max by (instance) (scrape_duration_seconds{{{_SERVER}}})",
                        "answer {{instance}}",
                    ),
                    Query(
                        "sum by (instance) "
                        f"(rate(prosody_stats_collection_seconds_sum{{{_SERVER}}}"
                        "[$__rate_interval])) / sum by (instance) "
                        f"(rate(prosody_stats_collection_seconds_count{{{_SERVER}}}"
                        "[$__rate_interval]))",
                        "collection {{instance}}",
                    ),
                    bands=((None, "transparent"), (0.5, YELLOW), (2, RED)),
                    width=7,
                ),
            ],
        ),
        Row(
            "Messages of the manager",
            [
                timeseries(
                    "Received, by kind",
                    "ops",
                    "Messages in, a second, by their type.",
                    _kinds("kestrel_stanzas_total", "in"),
                    stack=True,
                ),
                timeseries(
                    "Sent, by kind",
                    "ops",
                    "Messages out, a second, by their type.",
                    _kinds("kestrel_stanzas_total", "out"),
                    stack=True,
                ),
                timeseries(
                    "Refused and returned",
                    "ops",
                    "Messages that could not be read, that the sender may not send, and that came "
                    "back undelivered.",
                    Query(
                        "sum by (kind) (rate(kestrel_stanzas_total"
                        '{%m, kind=~"bounce|unreadable|forbidden"}[$__rate_interval]))',
                        "{{kind}}",
                    ),
                ),
                timeseries(
                    "Bytes received, by kind",
                    "Bps",
                    "JSON text in, before XML quotes it.",
                    _kinds("kestrel_stanza_bytes_total", "in"),
                    stack=True,
                ),
                timeseries(
                    "Bytes sent, by kind",
                    "Bps",
                    "JSON text out, before XML quotes it.",
                    _kinds("kestrel_stanza_bytes_total", "out"),
                    stack=True,
                ),
                timeseries(
                    "Size of a message",
                    "bytes",
                    "Mean size of a message, by direction. Batches make it grow under load.",
                    Query(
                        "sum by (direction) "
                        "(rate(kestrel_stanza_bytes_total{%m}[$__rate_interval])) / "
                        "(sum by (direction) "
                        "(rate(kestrel_stanzas_total{%m}[$__rate_interval])) > 0)",
                        "{{direction}}",
                    ),
                ),
            ],
        ),
        Row(
            "Advertisements",
            [
                timeseries(
                    "Advertisements",
                    "ops",
                    "Full ones come with a hello; a heartbeat renews one without sending it again.",
                    per_second("kestrel_ads_total", "kind"),
                ),
                timeseries(
                    "Bytes of advertisements",
                    "Bps",
                    "Their JSON text. The interval of heartbeats grows with the pool, so this "
                    "should stay small.",
                    per_second("kestrel_ad_bytes_total", "kind"),
                ),
                timeseries(
                    "Share of all bytes received",
                    "percentunit",
                    "What it costs to know who is there: near 1 in an idle pool, near 0 in a busy "
                    "one.",
                    Query(
                        "sum(rate(kestrel_ad_bytes_total{%m}[$__rate_interval])) / "
                        '(sum(rate(kestrel_stanza_bytes_total{%m, direction="in"}'
                        "[$__rate_interval])) > 0)",
                        "advertisements",
                    ),
                    maximum=1,
                ),
            ],
        ),
        Row(
            "Store",
            [
                stat(
                    "Store",
                    "short",
                    "Whether commits succeed.",
                    "max(kestrel_store_error{%m})",
                    words={0: ("writes", GREEN), 1: ("FAILING", RED)},
                    width=4,
                ),
                timeseries(
                    "Size on disk",
                    "bytes",
                    "The store, which keeps what the manager has promised.",
                    Query("max by (instance) (kestrel_store_bytes{%m})"),
                    width=6,
                ),
                timeseries(
                    "Records and commits",
                    "ops",
                    "Records made durable and the commits that did it, a second. Many records to "
                    "a commit is what makes it fast.",
                    per_second("kestrel_commit_records_total"),
                    Query(
                        "sum(rate(kestrel_commit_seconds_count{%m}[$__rate_interval]))", "commits"
                    ),
                    width=7,
                ),
                timeseries(
                    "Time of a commit, percentiles",
                    "s",
                    "What a result waits for before it is acknowledged.",
                    *quantiles("kestrel_commit_seconds"),
                    logarithmic=True,
                    width=7,
                ),
                latency(
                    "Time of a commit",
                    "What a result waits for before it is acknowledged.",
                    "kestrel_commit_seconds",
                    width=12,
                ),
                latency(
                    "Event loop lag",
                    "How late a timer came that is set four times a second: what every message "
                    "waits for.",
                    "kestrel_event_loop_lag_seconds",
                    width=12,
                ),
            ],
        ),
        Row(
            "Manager's process",
            [
                timeseries(
                    "Worst event loop lag",
                    "s",
                    "The largest lag of the last half minute to minute.",
                    Query("max by (instance) (kestrel_event_loop_lag_max_seconds{%m})"),
                    bands=((None, "transparent"), (0.5, YELLOW), (2, RED)),
                    width=6,
                ),
                timeseries(
                    "Processor time",
                    "percentunit",
                    "Share of one processor. The manager uses one: at 1 it is at its limit.",
                    Query(
                        "sum by (instance) "
                        f"(rate(process_cpu_seconds_total{{{_PROCESS}}}[$__rate_interval]))"
                    ),
                    bands=((None, "transparent"), (0.7, YELLOW), (0.9, RED)),
                    width=6,
                ),
                timeseries(
                    "Memory",
                    "bytes",
                    "Resident memory.",
                    Query(f"sum by (instance) (process_resident_memory_bytes{{{_PROCESS}}})"),
                    width=6,
                ),
                timeseries(
                    "Time of a scrape",
                    "s",
                    "How long the manager stands still to write its page of metrics.",
                    Query("max by (instance) (kestrel_scrape_seconds{%m})"),
                    width=6,
                ),
                timeseries(
                    "Managers that stand by",
                    "short",
                    "Managers that could take the pool over, as the one that leads sees them; only "
                    "where several share a store.",
                    Query("max by (instance) (kestrel_managers_standing_by{%m})"),
                    width=6,
                ),
            ],
        ),
    ],
    variables=(
        MANAGER,
        Variable("server", "XMPP server", 'label_values(up{job="kestrel-xmpp-server"}, instance)'),
    ),
)
