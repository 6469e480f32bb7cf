"""Where requests wait, and what each step of the engine makes of the room it has."""

from surgetank.dashboards.backends import NEUTRAL
from surgetank.dashboards.boards.verdict import SHARES, VERDICT
from surgetank.dashboards.objectives import TTFT_SECONDS
from surgetank.dashboards.panels import TOKENS_PER_SECOND, Board, Panel, Row, here, q, recorded
from surgetank.dashboards.promql import ratio

_WHICH = "{{backend}} {{model}} {{instance}}"


def engine_quantile(p: float, name: str) -> str:
    """A quantile over a neutral histogram, of any engine; absent without observations."""
    rates = f"rate({recorded(f'{NEUTRAL}{name}_bucket')}[$__rate_interval])"
    seen = f"rate({recorded(f'{NEUTRAL}{name}_count')}[$__rate_interval])"
    quantile = f"histogram_quantile({p:g}, sum by (instance, model, backend, le) ({rates}))"
    return f"{quantile} and sum by (instance, model, backend) ({seen}) > 0"


_QUEUE = Row(
    "Queue at the gate",
    (
        Panel(
            title="Waiting requests by class",
            means="The queue lives at the gate, where order and deadlines still act.",
            do="Growing without end: the engine has stalled or the limits are too wide.",
            queries=(
                q(here.gauge("sum", "queue_requests", "priority", "lane"), "{{priority}} {{lane}}"),
            ),
            unit="short",
            stacked=True,
        ),
        Panel(
            title="Oldest waiting request",
            means="How long the longest-waiting request of each class has waited.",
            do="Above the line its first token is late already: the alert QueueWaitHigh.",
            queries=(
                q(
                    f"{here.gauge('max', 'queue_oldest_age_seconds', 'priority')} "
                    f"or {here.gauge('max', 'queue_requests', 'priority')} * 0",
                    "{{priority}}",
                ),
            ),
            unit="s",
            bad=TTFT_SECONDS,
        ),
        Panel(
            title="Wait of dispatched requests",
            means="Time in the queue of those who were served.",
            do="Near the TTFT target: the queue is as long as it may be.",
            queries=tuple(
                q(here.quantile(p, "queue_wait_seconds", "priority", outcome="dispatched"), legend)
                for p, legend in ((0.5, "p50 {{priority}}"), (0.99, "p99 {{priority}}"))
            ),
            unit="s",
            bad=TTFT_SECONDS,
        ),
        Panel(
            title="How requests left the queue",
            means="dispatched to the engine, shed for a higher class, expired, or cancelled.",
            do="expired above zero: requests were let in that could not be served in time.",
            queries=(q(here.events("queue_wait_seconds", "outcome"), "{{outcome}}"),),
            unit="reqps",
            stacked=True,
        ),
        Panel(
            title="Waiting prompt tokens",
            means="The prefill that waits, by class.",
            do="Few requests and many tokens: long prompts hold the line.",
            queries=(q(here.gauge("sum", "queue_tokens", "priority"), "{{priority}}"),),
            unit="short",
            stacked=True,
        ),
        Panel(
            title="Prefill backlog in the engine",
            means="Prompt tokens the engine has taken and not computed yet.",
            do="More than one step's budget: the gate dispatches too early.",
            queries=(
                q(here.gauge("max", "batch_prefill_backlog_tokens", "instance"), "{{instance}}"),
            ),
            unit="short",
        ),
    ),
)

_BATCH = Row(
    "Batch",
    (
        VERDICT,
        SHARES,
        Panel(
            title="Slots by reason",
            means="Each step's slots: filled, or empty for the one reason that binds.",
            do="no_work is idle room. Any blocked_* is somebody waiting for that reason.",
            queries=(
                q(
                    f"avg by (state) ({recorded('instance_state:slots:ratio2m')})",
                    "{{state}}",
                ),
            ),
            unit="percentunit",
            stacked=True,
            lowest=0,
            highest=1,
        ),
        Panel(
            title="Fill of contended steps",
            means=(
                "Share of slots filled in the steps that began with a queue in the engine, and how "
                "many steps did. Fill of all steps is beside it: low fill without a queue is idle."
            ),
            do="Contended often and filled badly is a scheduling fault.",
            queries=(
                q(recorded("instance:contended_fill:ratio2m"), "contended fill {{instance}}"),
                q(recorded("instance:contended:ratio2m"), "contended share {{instance}}"),
                q(
                    ratio(
                        here.rate("batch_scheduled_seqs_total", "instance"),
                        here.rate("batch_seq_capacity_total", "instance"),
                    ),
                    "fill of all steps {{instance}}",
                ),
            ),
            unit="percentunit",
            lowest=0,
            highest=1,
        ),
        Panel(
            title="Running and waiting sequences",
            means="In the running batch, and held by the engine without running.",
            do="Waiting in the engine should stay small: waiting belongs at the gate.",
            queries=(
                q(here.gauge("sum", "batch_running_requests", "priority"), "running {{priority}}"),
                q(here.gauge("sum", "batch_waiting_requests", "priority"), "waiting {{priority}}"),
            ),
            unit="short",
            stacked=True,
        ),
        Panel(
            title="Average batch",
            means="Sequences per step.",
            do="Falling while the queue grows: see the slots by reason.",
            queries=(
                q(
                    ratio(
                        here.rate("batch_scheduled_seqs_total", "instance"),
                        here.rate("batch_steps_total", "instance"),
                    ),
                    "{{instance}}",
                ),
            ),
            unit="short",
        ),
        Panel(
            title="Tokens computed by phase",
            means="Prefill reads prompts, decode writes answers.",
            do="Prefill crowding out decode makes gaps between tokens.",
            queries=(q(here.rate("batch_scheduled_tokens_total", "phase"), "{{phase}}"),),
            unit=TOKENS_PER_SECOND,
            stacked=True,
        ),
        Panel(
            title="Token budget used",
            means="Share of the tokens a step may compute that it did compute.",
            do="Near 1 with short steps: the budget is too small (token_budget).",
            queries=(
                q(
                    ratio(
                        here.rate("batch_scheduled_tokens_total", "instance"),
                        here.rate("batch_token_budget_total", "instance"),
                    ),
                    "{{instance}}",
                ),
            ),
            unit="percentunit",
            lowest=0,
            highest=1,
        ),
    ),
)

_ANY = Row(
    "Engines of any kind (embedded, vLLM, SGLang)",
    (
        Panel(
            title="Running and waiting",
            means="What each engine itself says, under one name whatever it calls it.",
            do="Waiting in a remote engine: somebody reaches it past the gate.",
            queries=(
                q(recorded(f"{NEUTRAL}running_requests"), "running {{backend}} {{instance}}"),
                q(recorded(f"{NEUTRAL}waiting_requests"), "waiting {{backend}} {{instance}}"),
            ),
            unit="short",
        ),
        Panel(
            title="Tokens per second",
            means="Prompt and answer tokens of each engine.",
            do="Compare engines of the same model: one that is slower is ill.",
            queries=tuple(
                q(
                    f"rate({recorded(f'{NEUTRAL}{name}_tokens_total')}[$__rate_interval])",
                    f"{name} {{{{backend}}}} {{{{instance}}}}",
                )
                for name in ("prompt", "generation")
            ),
            unit=TOKENS_PER_SECOND,
        ),
    ),
)

_REMOTE = Row(
    "Inside remote engines (vLLM, SGLang)",
    (
        Panel(
            title="Time to first token inside the engine (p99)",
            means="Measured by the remote engine: without the wait at our gate.",
            do="Much below our own TTFT: the wait is here. About equal: the wait is there.",
            queries=(q(engine_quantile(0.99, "time_to_first_token_seconds"), _WHICH),),
            unit="s",
        ),
        Panel(
            title="Gaps between tokens inside the engine (p99)",
            means="Measured by the remote engine.",
            do="High there too: its steps are slow. High only here: the way back is.",
            queries=(q(engine_quantile(0.99, "inter_token_latency_seconds"), _WHICH),),
            unit="s",
        ),
        Panel(
            title="Wait inside the engine (p99)",
            means="Time in the remote engine's own queue.",
            do="Should be near zero: the gate dispatches only when there is room.",
            queries=(q(engine_quantile(0.99, "queue_wait_seconds"), _WHICH),),
            unit="s",
        ),
        Panel(
            title="Request duration inside the engine (p99)",
            means="From the engine's acceptance to its last token.",
            do="Compare with the duration on the Overview board: the difference is ours.",
            queries=(q(engine_quantile(0.99, "request_duration_seconds"), _WHICH),),
            unit="s",
        ),
    ),
)

QUEUE_BATCH = Board(
    "surgetank-queue-batch",
    "Surgetank / Queue and batch",
    "Where requests wait, and what each step makes of the room it has.",
    (_QUEUE, _BATCH, _ANY, _REMOTE),
)
