"""The rows about the engines behind the gate: whether they live, and how several share the work."""

from surgetank.dashboards.panels import Kind, Panel, Row, here, q

ENGINE = Row(
    "Engine",
    (
        Panel(
            title="Connected",
            means="1 while the engine answers its sidecar.",
            do="0: the alert BackendDown, or BackendLeftOut where others are up.",
            queries=(
                q(
                    here.gauge("min", "backend_up", "instance", "backend"),
                    "{{backend}} {{instance}}",
                ),
            ),
            unit="short",
            kind=Kind.STAT,
            texts=((0, "down", "red"), (1, "up", "green")),
        ),
        Panel(
            title="Ledger drift",
            means="Sequences that the gate had in the engine when it last told, less those that it "
            "told of. Below 0: others use it.",
            do="Off zero for minutes: the alert LedgerDrift.",
            queries=(q(here.gauge("avg", "ledger_drift", "instance"), "{{instance}}"),),
            unit="short",
        ),
        Panel(
            title="What another maker's engine tells",
            means="1: this signal can be read from its metrics; the laws that need it run on it.",
            do="0 where it was 1: it was started without its metrics, or a version renamed them.",
            queries=(
                q(
                    here.gauge("min", "backend_signal_available", "instance", "backend", "signal"),
                    "{{backend}} {{signal}} {{instance}}",
                ),
            ),
            unit="short",
            kind=Kind.STAT,
            texts=((0, "not told", "orange"), (1, "told", "green")),
        ),
        Panel(
            title="Time since it last told us anything",
            means="Embedded: without a step while it has work. Remote: age of its metrics.",
            do="Embedded above 10 s: EngineStalled. Remote above 15 s: BackendStale.",
            queries=(
                q(
                    here.gauge("max", "backend_metrics_age_seconds", "instance", "backend"),
                    "{{backend}} {{instance}}",
                ),
            ),
            unit="s",
            bad=10,
        ),
    ),
)

ENGINES = Row(
    "Several engines",
    (
        Panel(
            title="What they are",
            means="Every engine behind the gate: its name, who made it, what it does of a request.",
            do="One that is missing is not configured at this sidecar.",
            queries=(
                q(
                    here.gauge("max", "backend_info", "instance", "backend", "maker", "role"),
                    "{{backend}}: {{maker}}, {{role}} {{instance}}",
                ),
            ),
            unit="short",
            kind=Kind.NAME,
            newest=True,
        ),
        Panel(
            title="Who gets requests",
            means="The state of each engine. up and slow_start get requests, the others do not.",
            do="down, ejected or other_model: the alert BackendLeftOut. draining: an operator's.",
            queries=(
                q(
                    f"{here.gauge('max', 'backend_state', 'instance', 'backend', 'state')} == 1",
                    "{{backend}} {{state}} {{instance}}",
                ),
            ),
            unit="short",
            kind=Kind.NAME,
            newest=True,
        ),
        Panel(
            title="Requests by engine",
            means="Where requests go, and why there: by affinity for the prompt's beginning, for "
            "the least wait, or because no other had room.",
            do="All to one: prompts begin alike, and routing.affinity_gain holds them together.",
            queries=(
                q(
                    here.rate("backend_requests_total", "instance", "backend", "why"),
                    "{{backend}} {{why}} {{instance}}",
                ),
            ),
            unit="reqps",
            stacked=True,
        ),
        Panel(
            title="Sequences in each engine",
            means="How full each engine is, beside how many it may have now.",
            do="One full and others empty for long: the wait by engine says whether it is slow.",
            queries=(
                q(
                    here.gauge("sum", "backend_running_sequences", "instance", "backend"),
                    "{{backend}} {{instance}}",
                ),
                q(
                    here.gauge("sum", "backend_slots", "instance", "backend"),
                    "{{backend}} may have {{instance}}",
                ),
            ),
            unit="short",
        ),
        Panel(
            title="Wait by engine",
            means="Seconds until the prompt of an average request, sent there now, would be read.",
            do="One far above the others: it is slow; surgetank backends show says how slow.",
            queries=(
                q(
                    here.gauge("max", "backend_wait_seconds", "instance", "backend"),
                    "{{backend}} {{instance}}",
                ),
            ),
            unit="s",
        ),
        Panel(
            title="Moved and left out",
            means="Requests that another engine got after this one was lost or full, and times "
            "that an engine was left out for faults in a row.",
            do="Moves without ejections: it pushes back; its in-flight limit is being learned.",
            queries=(
                q(
                    here.rate("backend_moves_total", "instance", "backend"),
                    "moved from {{backend}} {{instance}}",
                ),
                q(
                    here.rate("backend_ejections_total", "instance", "backend"),
                    "{{backend}} left out {{instance}}",
                ),
            ),
            unit="ops",
        ),
        Panel(
            title="Restarts seen",
            means="Times in 15 minutes that an engine came back after it was lost, or was seen to "
            "be another process than before.",
            do="3 or more: the alert BackendRestarting.",
            queries=(
                q(
                    here.increase("backend_restarts_total", "instance", "backend", window="15m"),
                    "{{backend}} {{instance}}",
                ),
            ),
            unit="short",
            bad=3,
        ),
    ),
)
