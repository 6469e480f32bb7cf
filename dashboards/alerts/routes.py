"""The Alertmanager configuration: who hears of an alert, and which alerts explain others."""

from typing import Any

from surgetank.dashboards.prometheus import ENGINE_JOB

HEADER = """\
# Alerts reach people once the receivers `page` and `ticket` name a way to them, for example:
#   - name: page
#     webhook_configs: [{url: "https://example.org/hook"}]
# `watchdog` belongs to something outside that notices when it falls silent.
"""

_ENGINE_GONE = (
    "BrownOut",
    "BackendStale",
    "EngineStalled",
    "LimitAtFloor",
    "LimitBinding",
    "QueueWaitHigh",
    "SchedulingLimited",
    "ShedHigh",
    "StepModelWrong",
    "StepTimeSpike",
)
_ENGINE_STANDS = (
    "BackendStale",
    "BrownOut",
    "ComputeLimited",
    "LimitAtFloor",
    "LimitBinding",
    "MemoryLimited",
    "PriorityInversion",
    "QueueWaitHigh",
    "SchedulingLimited",
    "ShedHigh",
    "StepModelWrong",
    "StepTimeSpike",
)
# A cause, and what then needs no telling, on the same instance.
CONSEQUENCES: dict[str, tuple[str, ...]] = {
    "BackendDown": _ENGINE_GONE,
    "EngineStalled": _ENGINE_STANDS,
    "GpuThrottle": ("StepTimeSpike",),
    "OutOfMemory": ("MemoryLimited", "PreemptionThrash"),
    "PreemptionThrash": ("MemoryLimited",),
    "LimitAtFloor": ("LimitBinding",),
    "LimitBinding": ("ShedHigh",),
    "MemoryLimited": ("ShedHigh",),
    "ComputeLimited": ("ShedHigh",),
    "BrownOut": ("ShedHigh",),
}


def configuration() -> dict[str, Any]:
    """alertmanager.yml."""
    return {
        "route": {
            "receiver": "ticket",
            "group_by": ["alertname", "instance"],
            "group_wait": "10s",
            "group_interval": "1m",
            "repeat_interval": "4h",
            "routes": [
                {
                    "matchers": ['alertname="Watchdog"'],
                    "receiver": "watchdog",
                    "group_wait": "0s",
                    "repeat_interval": "1m",
                },
                {"matchers": ['severity="critical"'], "receiver": "page"},
            ],
        },
        "receivers": [{"name": "page"}, {"name": "ticket"}, {"name": "watchdog"}],
        "inhibit_rules": [*_consequences(), *_engine_does_not_answer(), _worse_burn()],
    }


def _consequences() -> list[dict[str, Any]]:
    return [
        {
            "source_matchers": [f'alertname="{cause}"'],
            "target_matchers": [f'alertname=~"{"|".join(consequences)}"'],
            "equal": ["instance"],
        }
        for cause, consequences in CONSEQUENCES.items()
    ]


def _engine_does_not_answer() -> list[dict[str, Any]]:
    """An engine that is gone or frozen answers no scrape either."""
    return [
        {
            "source_matchers": [f'alertname="{cause}"'],
            "target_matchers": ['alertname="MetricsAbsent"', f'job="{ENGINE_JOB}"'],
            "equal": ["instance"],
        }
        for cause in ("BackendDown", "EngineStalled")
    ]


def _worse_burn() -> dict[str, Any]:
    """One budget's fast burn says all that its slow burn says."""
    return {
        "source_matchers": ['alertname="ErrorBudgetBurn"', 'severity="critical"'],
        "target_matchers": ['alertname="ErrorBudgetBurn"', 'severity="warning"'],
        "equal": ["slo"],
    }
