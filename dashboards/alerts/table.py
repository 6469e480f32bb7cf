"""Every group of alerts: a new alert is an entry in its file, a new file a line here."""

from surgetank.dashboards.alerts.control import CONTROL
from surgetank.dashboards.alerts.engine import BACKEND, GPU, LIMITED, STEPS
from surgetank.dashboards.alerts.overload import CLIENTS, LIMITS, QUEUE
from surgetank.dashboards.alerts.slo import SLO
from surgetank.dashboards.alerts.telemetry import TELEMETRY
from surgetank.dashboards.rules import Alert

GROUPS = (SLO, CLIENTS, QUEUE, LIMITS, CONTROL, BACKEND, STEPS, GPU, LIMITED, TELEMETRY)

ALERTS = tuple(rule for group in GROUPS for rule in group.rules if isinstance(rule, Alert))
