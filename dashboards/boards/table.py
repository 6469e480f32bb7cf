"""Every board, in the order in which an operator looks at them."""

from surgetank.dashboards.boards.compute import COMPUTE
from surgetank.dashboards.boards.memory import MEMORY
from surgetank.dashboards.boards.overload import OVERLOAD
from surgetank.dashboards.boards.overview import OVERVIEW
from surgetank.dashboards.boards.queue_batch import QUEUE_BATCH
from surgetank.dashboards.boards.telemetry_health import TELEMETRY_HEALTH

BOARDS = (OVERVIEW, OVERLOAD, QUEUE_BATCH, MEMORY, COMPUTE, TELEMETRY_HEALTH)
