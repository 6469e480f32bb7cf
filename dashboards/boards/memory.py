"""The KV pool: who holds it, how well it is used, and what is lost when it runs out."""

from surgetank.dashboards.backends import NEUTRAL
from surgetank.dashboards.panels import Board, Panel, Row, here, q, recorded
from surgetank.dashboards.promql import nonzero, ratio

_used = here.gauge("sum", "memory_kv_blocks", "instance", state="used")
_size = here.gauge("max", "memory_kv_block_size_tokens", "instance")
_stored = here.gauge("sum", "memory_kv_stored_tokens", "instance")

_WASTE = {
    "thrown away": here.rate("batch_preempted_tokens_total", "instance", kind="recompute"),
    "recomputed": here.rate("batch_recomputed_tokens_total", "instance"),
}

_POOL = Row(
    "KV pool",
    (
        Panel(
            title="Blocks",
            means="Held by live sequences, held only by the prefix cache, and free.",
            do="No free and little cached: the next request has to wait or preempt.",
            queries=tuple(
                q(here.gauge("sum", "memory_kv_blocks", state=state), state)
                for state in ("used", "cached", "free")
            ),
            unit="short",
            stacked=True,
        ),
        Panel(
            title="KV pool used, any engine",
            means="Share of the pool that live sequences hold, averaged and never summed.",
            do="Above the line the gate holds back all but critical requests.",
            queries=(q(recorded(f"{NEUTRAL}kv_used_ratio"), "{{backend}} {{instance}}"),),
            unit="percentunit",
            warn=0.8,
            bad=0.92,
            lowest=0,
            highest=1,
        ),
        Panel(
            title="Fragmentation",
            means="Share of the used blocks' room that holds no token; shared blocks count once.",
            do="High with short requests: a smaller block size wastes less.",
            queries=(q(f"1 - {ratio(_stored, f'{_used} * {_size}')}", "{{instance}}"),),
            unit="percentunit",
            lowest=0,
        ),
        Panel(
            title="Tokens stored",
            means="Tokens in used blocks, and the room they have.",
            do="The distance between the lines is fragmentation.",
            queries=(
                q(_stored, "stored {{instance}}"),
                q(f"{_used} * {_size}", "room in used blocks {{instance}}"),
            ),
            unit="short",
        ),
        Panel(
            title="Allocation failures",
            means="Times a sequence needed a block and none was free.",
            do="Above zero for long: too much is let in; MemoryLimited or PreemptionThrash follow.",
            queries=(
                q(here.rate("memory_kv_allocation_failures_total", "instance"), "{{instance}}"),
            ),
            unit="eps",
        ),
        Panel(
            title="Out of memory",
            means="Which memory ran out, and what was done: refused means that a request was lost.",
            do="Any: the alert OutOfMemory.",
            queries=(
                q(
                    nonzero(here.rate("memory_oom_total", "source", "action"), "source"),
                    "{{source}} {{action}}",
                ),
            ),
            unit="eps",
            bad=0.01,
        ),
        Panel(
            title="Memory of process and device",
            means="cpu: resident of the total that the process may use. GPU: torch's allocator.",
            do="resident near total: the host kills the engine. reserved above allocated: holes.",
            queries=(
                q(
                    here.gauge("max", "memory_device_bytes", "instance", "device", "kind"),
                    "{{device}} {{kind}} {{instance}}",
                ),
            ),
            unit="bytes",
            lowest=0,
        ),
        Panel(
            title="Allocations tried again",
            means="torch's GPU allocator flushed its cache and tried once more. Absent on a CPU.",
            do="Steadily above zero: each costs milliseconds, and OutOfMemory is near.",
            queries=(
                q(
                    here.rate("memory_alloc_retries_total", "instance", "device"),
                    "{{device}} {{instance}}",
                ),
            ),
            unit="eps",
        ),
        Panel(
            title="Requests lost to memory",
            means="Requests that ended because memory ran out.",
            do="Any: the alert OutOfMemory.",
            queries=(
                q(
                    here.rate("request_failures_total", "instance", reason="out_of_memory"),
                    "{{instance}}",
                ),
            ),
            unit="reqps",
            bad=0.01,
        ),
    ),
)

_PREFIX = Row(
    "Prefix cache",
    (
        Panel(
            title="Hit share",
            means="Share of prompt tokens that were found in the cache; recomputing is no hit.",
            do="Falling: prompts got more varied, or the pool too small to keep them.",
            queries=(
                q(
                    ratio(
                        here.rate("memory_prefix_tokens_total", "instance", result="hit"),
                        here.rate("memory_prefix_tokens_total", "instance"),
                    ),
                    "{{instance}}",
                ),
            ),
            unit="percentunit",
            lowest=0,
            highest=1,
        ),
        Panel(
            title="Hit share, any engine",
            means="The same from what each engine says of itself.",
            do="Engines of one model that differ: requests are not routed by prefix.",
            queries=(
                q(
                    ratio(
                        f"rate({recorded(f'{NEUTRAL}prefix_hit_tokens_total')}[$__rate_interval])",
                        f"rate({recorded(f'{NEUTRAL}prefix_query_tokens_total')}[$__rate_interval])",
                    ),
                    "{{backend}} {{instance}}",
                ),
            ),
            unit="percentunit",
            lowest=0,
            highest=1,
        ),
    ),
)

_PREEMPTION = Row(
    "Preemption",
    (
        Panel(
            title="Preemptions",
            means="Running sequences put back, to be recomputed or swapped in, and why.",
            do="Steady preemption for kv is thrash; single ones are the price of a full pool.",
            queries=(
                q(
                    nonzero(here.rate("batch_preemptions_total", "kind", "reason"), "kind"),
                    "{{kind}} {{reason}}",
                ),
            ),
            unit="eps",
        ),
        Panel(
            title="Preemptions by class",
            means="Whose sequences were put back.",
            do="critical or default while lower classes run: priorities do not reach the engine.",
            queries=(q(here.rate("batch_preemptions_total", "priority"), "{{priority}}"),),
            unit="eps",
            stacked=True,
        ),
        Panel(
            title="Preemptions, any engine",
            means="The same from what each engine says of itself (SGLang calls them retractions).",
            do="A remote engine that preempts was given more than it can hold.",
            queries=(
                q(
                    f"rate({recorded(f'{NEUTRAL}preemptions_total')}[$__rate_interval])",
                    "{{backend}} {{instance}}",
                ),
            ),
            unit="eps",
        ),
        Panel(
            title="Wasted share",
            means="Tokens thrown away by preemption, and of them recomputed, per token computed.",
            do="Above the line: the alert PreemptionThrash.",
            queries=(
                *(
                    q(
                        ratio(tokens, here.rate("batch_scheduled_tokens_total", "instance")),
                        f"{what} {{{{instance}}}}",
                    )
                    for what, tokens in _WASTE.items()
                ),
            ),
            unit="percentunit",
            bad=0.1,
            lowest=0,
        ),
        Panel(
            title="Swap pool",
            means="Blocks of the swap pool in use: sequences that wait for room to come back.",
            do="Full: further victims are recomputed instead.",
            queries=(q(here.gauge("max", "memory_kv_swap_blocks", "instance"), "{{instance}}"),),
            unit="short",
            lowest=0,
        ),
        Panel(
            title="Faults in the KV cache's books",
            means="Found by the integrity check while the engine idles: leaks and double frees.",
            do="Any is a bug: restart the engine when it suits, and report its log.",
            queries=(q(here.rate("memory_kv_faults_total", "instance"), "{{instance}}"),),
            unit="eps",
            bad=0.001,
        ),
        Panel(
            title="Swap traffic",
            means="KV bytes copied to and from host memory.",
            do="Out without in: sequences are swapped and never come back.",
            queries=(q(here.rate("batch_swap_bytes_total", "direction"), "{{direction}}"),),
            unit="binBps",
        ),
    ),
)

MEMORY = Board(
    "surgetank-memory",
    "Surgetank / Memory",
    "Who holds the KV pool, how well it is used, and what is lost when it runs out.",
    (_POOL, _PREFIX, _PREEMPTION),
)
