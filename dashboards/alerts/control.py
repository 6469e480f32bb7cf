"""Alerts on the control plane: its policies, its step model, its brown-out, its journal."""

from surgetank.dashboards.recordings import now
from surgetank.dashboards.rules import Alert, Group

CRITICAL_ONLY = 4  # the last rung of the brown-out ladder

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
                f"{now.gauge('max', 'step_model_error_ratio', 'instance')} > 0.15\n"
                f"and {now.gauge('min', 'step_model_fitted', 'instance')} == 1"
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
