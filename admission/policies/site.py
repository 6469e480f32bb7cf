"""What an admission policy finds at its place: the gate's limits, its queue, its estimators."""

import random
from dataclasses import dataclass

from surgetank.admission.laws import Laws
from surgetank.admission.laws_config import LawsConfig
from surgetank.admission.limits import Limits
from surgetank.admission.pace import Pace
from surgetank.admission.queue import Queue
from surgetank.admission.retry_budget import RetryBudget


@dataclass(frozen=True, slots=True)
class Site:
    """Live parts, to be read and not changed."""

    config: LawsConfig
    limits: Limits
    queue: Queue
    pace: Pace
    laws: Laws
    budget: RetryBudget
    rng: random.Random
