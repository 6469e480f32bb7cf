"""Alerts on the control plane: its policies, its step model, its brown-out, its journal."""

from surgetank.dashboards.recordings import now
from surgetank.dashboards.rules import Alert, Group

_error = now.select("step_model_error_ratio")
# Without steps the error stands still, and the first ones, from which the model learns, are wrong.
_steps = now.events("compute_step_seconds", "instance", window="5m")
JUDGED = 1  # steps a second: 300 in the window, and the error has forgotten what was before them
CRITICAL_ONLY = 4  # the last rung of the brown-out ladder
_lost = now.gauge("max", "shared_state_mode", "instance", mode=("holding", "alone"))
_fell = now.increase(
    "policy_rollbacks_total",
    *("instance", "policy"),
    window="10m",
    cause=("goodput", "late", "errors"),
)

CONTROL = Group(
    "surgetank_control",
    (
        Alert(
            name="PolicyFailing",
            expr=f"{now.increase('control_policy_errors_total', 'instance')} > 0",
            wait="1m",
            severity="warning",
            summary="A control policy of {{ $labels.instance }} fails.",
            description=(
                "{{ $value | humanize }} errors in two minutes. Its limits stay as they were when "
                "it last worked; the sidecar's log has the traceback."
            ),
        ),
        Alert(
            name="PolicyRolledBack",
            expr=f"{_fell} > 0",
            wait="0s",
            severity="warning",
            summary="The policy {{ $labels.policy }} was rolled back on {{ $labels.instance }}.",
            description=(
                "It answered less, came late more often, or raised. What was live before decides "
                "again; the journal has the figures."
            ),
        ),
        Alert(
            name="BrownOut",
            expr=f"{now.gauge('max', 'brownout_level', 'instance')} >= {CRITICAL_ONLY}",
            wait="2m",
            severity="critical",
            summary="{{ $labels.instance }} serves critical requests only.",
            description=(
                "The brown-out ladder stands on its last rung: milder ones did not help. Whatever "
                "holds the engine back fires beside this, or see the verdict."
            ),
        ),
        Alert(
            name="StepModelWrong",
            expr=(
                f"max by (instance) (avg_over_time({_error}[5m])) > 0.15\n"
                f"and {now.gauge('min', 'step_model_fitted', 'instance')} == 1\n"
                f"and {_steps} >= {JUDGED}"
            ),
            wait="5m",
            severity="warning",
            summary="{{ $labels.instance }} misjudges how long a step takes.",
            description=(
                "By {{ $value | humanizePercentage }} on average. Predicted waits, and with them "
                "admission, are as wrong. Something shares the device, or its clock changes."
            ),
        ),
        Alert(
            name="SharedStateLost",
            expr=f"{_lost} == 1",
            wait="1m",
            severity="warning",
            summary="{{ $labels.instance }} does not reach the Redis that it shares.",
            description=(
                "For a minute now. It goes on with its own part of each quota, so that tenants may "
                "get less than they are due, never more. An override set here stays here."
            ),
        ),
        Alert(
            name="JournalFailing",
            expr=f"{now.increase('journal_write_failures_total', 'instance', window='10m')} > 0",
            wait="0s",
            severity="warning",
            summary="The journal of {{ $labels.instance }} is not written.",
            description=(
                "{{ $value | humanize }} changes did not reach its file in ten minutes: they hold, "
                "but who made them and why is lost with the process."
            ),
        ),
    ),
)
