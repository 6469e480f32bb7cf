"""How a test runs a command against a served admin API, and reads what it says."""

import json
from collections.abc import Callable
from typing import Any

from click.testing import Result

Ask = Callable[..., Result]


def as_json(result: Result) -> Any:
    """The command's JSON; fails when it did not end well."""
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)
