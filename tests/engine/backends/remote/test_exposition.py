"""A few series out of another engine's metrics page, whatever else stands in it."""

import math

from surgetank.engine.backends.remote.exposition import read_samples

PAGE = """\
# HELP a Something, a 1
# TYPE a gauge
a 1
a{x="1",y="with \\"quotes\\", a comma and } in it"} 2.5e3
a{x="2"} 3 1763000000000
a{x="3"}NaN
a{x="4"} nan
a{x="5"} high
a_bucket{le="+Inf"} 9
b 7
not a line
"""


def test_only_what_was_asked_for_is_read() -> None:
    samples = read_samples(PAGE, ("a", "c"))
    assert [*samples] == ["a"]
    values = [sample.value for sample in samples["a"]]
    assert values[:3] == [1.0, 2500.0, 3.0]
    assert math.isnan(values[3])
    assert len(values) == 4
    assert samples["a"][0].labels == {}
    assert samples["a"][2].labels == {"x": "2"}
    assert samples["a"][1].labels["x"] == "1"
