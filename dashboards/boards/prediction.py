"""What the gate predicts, what it makes of it, and how far to trust it; a row of Overload."""

from surgetank.dashboards.panels import Kind, Panel, Row, here, q

PREDICTION = Row(
    "Predicted wait",
    (
        Panel(
            title="Predicted wait against its threshold",
            means="What an average request would wait, by what makes it wait, and what it may.",
            do="Above the threshold the gate refuses. The largest term says what to look at.",
            queries=(
                q(
                    here.gauge("max", "predicted_wait_seconds", "instance", "term"),
                    "{{term}} {{instance}}",
                ),
                q(
                    here.gauge("min", "wait_threshold_seconds", "instance"),
                    "threshold {{instance}}",
                ),
            ),
            unit="s",
            lowest=0,
        ),
        Panel(
            title="Queue against its threshold",
            means="The same threshold in requests, beside the requests that wait.",
            do="A threshold that falls under the same traffic: requests cost more, or steps do.",
            queries=(
                q(
                    here.gauge("min", "queue_threshold_requests", "instance"),
                    "threshold {{instance}}",
                ),
                q(here.gauge("sum", "queue_requests", "instance"), "waiting {{instance}}"),
            ),
            unit="short",
            lowest=0,
        ),
        Panel(
            title="Cost of a request",
            means="Engine-seconds that an average request takes.",
            do="A rise is a change of the mix: longer prompts, longer answers, fewer cache hits.",
            queries=(q(here.gauge("max", "request_cost_seconds", "instance"), "{{instance}}"),),
            unit="s",
        ),
        Panel(
            title="Drain rate",
            means="Engine-seconds served per second; 1 while steps take as long as predicted.",
            do="Below 1 for long: the device is slower than it was, or shared.",
            queries=(q(here.gauge("min", "drain_rate", "instance"), "{{instance}}"),),
            unit="short",
            lowest=0,
        ),
        Panel(
            title="Error of the step model",
            means="How far predicted step times are off. Absent until the model is fitted.",
            do="Above the line: the alert StepModelWrong.",
            queries=(q(here.gauge("max", "step_model_error_ratio", "instance"), "{{instance}}"),),
            unit="percentunit",
            width=8,
            lowest=0,
            bad=0.15,
        ),
        Panel(
            title="Step model fitted",
            means="1 once waits can be predicted; before that only fixed limits hold.",
            do="0 under traffic for minutes: the gate hears no steps from its engine.",
            queries=(q(here.gauge("min", "step_model_fitted", "instance"), "{{instance}}"),),
            unit="short",
            kind=Kind.STAT,
            width=8,
            texts=((0, "not yet", "yellow"), (1, "fitted", "green")),
        ),
        Panel(
            title="Brown-out",
            means="Rung of the ladder: 1 short answers, 2 no sheddable, 3 no retries, 4 critical.",
            do="4 for long: the alert BrownOut. Below that the ladder does its work.",
            queries=(q(here.gauge("max", "brownout_level", "instance"), "{{instance}}"),),
            unit="short",
            width=8,
            lowest=0,
            highest=4,
            bad=4,
        ),
    ),
)
