"""Surgetank as the rate limit service of the real Envoy, on the example configuration."""

from pathlib import Path

import pytest
from openai import RateLimitError
from tests.e2e.behind.proxies import proxied
from tests.e2e.behind.stub_engine import stub_engine
from tests.e2e.behind.test_envoy import command

pytestmark = pytest.mark.e2e


def test_a_tenants_quota_holds_and_others_go_on(tmp_path: Path) -> None:
    settings = (
        'tenants.trusted_proxies=["127.0.0.1/32"]',
        "leases.tenants={small = {requests_per_minute = 6}}",
        "leases.burst=10",
    )
    with (
        stub_engine() as engine,
        proxied(engine, tmp_path, "envoy/ratelimit.yaml", command, *settings) as proxy,
    ):
        assert proxy.ask(**{"x-tenant": "small"}).choices[0].message.content == "hello"
        with pytest.raises(RateLimitError) as caught:
            proxy.ask(**{"x-tenant": "small"})
        headers = caught.value.response.headers
        assert headers["x-surgetank-reason"] == "tenant_quota"
        assert headers["x-should-retry"] == "true"
        assert int(headers["retry-after-ms"]) >= 50
        assert isinstance(caught.value.body, dict)
        assert caught.value.body["limit_name"] == "requests_per_minute"
        assert proxy.ask(**{"x-tenant": "other"}).choices[0].message.content == "hello"
        assert proxy.outcomes() == {"ok": 2.0, "quota": 1.0}
        proxy.hold(0, 0)
