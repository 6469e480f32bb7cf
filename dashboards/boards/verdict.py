"""The panels that say what holds the queue back; two boards show them."""

from surgetank.dashboards.panels import Kind, Panel, q, recorded

_SHARE = recorded("instance_verdict:share:ratio2m")
_QUEUED = recorded("instance:queued:ratio2m")
_HEALTHY = f'label_replace(max by (instance) ({_QUEUED}) * 0, "verdict", "healthy", "", "")'

VERDICT = Panel(
    title="Compute-limited or scheduling-limited?",
    means=(
        "What keeps waiting requests out of the batch, over two minutes, per instance. compute: "
        "the slots are filled. memory: no KV blocks. limit: one of ours. token_budget: the step's "
        "tokens are spent. scheduler: none of these. dispatch: the engine has room and the gate's "
        "queue does not reach it. healthy: nobody waits long enough to matter."
    ),
    do=(
        "compute: shed or add devices. memory: the Memory board. limit: `surgetank limits show`. "
        "token_budget: compute when steps are near the TPOT target, else raise max_batch_tokens. "
        "scheduler, dispatch: the Queue and batch board."
    ),
    queries=(
        q(
            f"topk by (instance) (1, {_SHARE} > 0.2) or on (instance) {_HEALTHY}",
            "{{instance}}: {{verdict}}",
        ),
    ),
    unit="percentunit",
    kind=Kind.NAME,
    width=8,
    warn=0.2,
    bad=0.7,
)

SHARES = Panel(
    title="What holds the queue back",
    means=(
        "Share of the engine's slots, while somebody waits, by the one reason that binds. A ramp "
        "fills slots without a queue and does not show here."
    ),
    do="The largest share is the verdict; its alert is named after it.",
    queries=(
        q(
            f"sum by (verdict) ({_SHARE}) / scalar(count(count by (instance) ({_SHARE})))",
            "{{verdict}}",
        ),
    ),
    unit="percentunit",
    stacked=True,
    lowest=0,
    highest=1,
)
