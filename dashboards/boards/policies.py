"""Policies on trial: what a shadow would have done, how a canary does; a row of Overload."""

from surgetank.dashboards.panels import Panel, Row, here, q

POLICIES = Row(
    "Policies on trial",
    (
        Panel(
            title="Shadows against what was done",
            means="Requests about which a policy in the shadow says otherwise than what was done.",
            do="What those became that it would refuse: surgetank policy show NAME.",
            queries=(
                q(
                    here.rate(
                        "policy_shadow_decisions_total",
                        "policy",
                        live="admitted",
                        shadow="refused",
                    ),
                    "{{policy}} would refuse",
                ),
                q(
                    here.rate(
                        "policy_shadow_decisions_total",
                        "policy",
                        live="refused",
                        shadow="admitted",
                    ),
                    "{{policy}} would admit",
                ),
            ),
            unit="reqps",
            width=8,
            lowest=0,
        ),
        Panel(
            title="Canary's goodput",
            means="Of the engine-seconds offered to each arm, the share that was answered in time.",
            do="A candidate that stays lower is rolled back by itself: surgetank policy show NAME.",
            queries=(
                q(
                    here.gauge("min", "policy_canary_goodput_ratio", "instance", "arm"),
                    "{{arm}} {{instance}}",
                ),
            ),
            unit="percentunit",
            width=8,
            lowest=0,
            highest=1,
        ),
        Panel(
            title="Rollbacks and faults of policies",
            means="Policies that were taken back, by cause, and times that one on trial raised.",
            do="goodput, late, errors: the alert PolicyRolledBack.",
            queries=(
                q(here.rate("policy_rollbacks_total", "policy", "cause"), "{{policy}}: {{cause}}"),
                q(here.rate("policy_errors_total", "policy"), "{{policy}} raised"),
            ),
            unit="eps",
            width=8,
            lowest=0,
        ),
    ),
)
