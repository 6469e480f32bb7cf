"""The Prometheus configuration: what is scraped, and under which instance."""

from typing import Any

SIDECAR_JOB, ENGINE_JOB, BACKEND_JOB = "surgetank", "surgetank-engine", "surgetank-backend"
JOBS = (SIDECAR_JOB, ENGINE_JOB, BACKEND_JOB)

# Where the product listens by default.
_LOCAL = {SIDECAR_JOB: "127.0.0.1:8400", ENGINE_JOB: "127.0.0.1:8403"}

HEADER = """\
# Scrapes one Surgetank on this host. A fleet's targets go into files of their own, such as
# targets/surgetank/fleet.yml and targets/surgetank-engine/fleet.yml. A sidecar and its engine
# carry the same `instance` label: rules join what the two say.
#
# A vLLM or SGLang server behind a sidecar goes into targets/surgetank-backend/fleet.yml:
#   - targets: ["10.0.0.7:8000"]
#     labels: {instance: gpu-7}
"""


def configuration() -> dict[str, Any]:
    """prometheus.yml, beside the folder rules/ and, if there is one, targets/."""
    return {
        "global": {"scrape_interval": "5s", "scrape_timeout": "4s", "evaluation_interval": "5s"},
        "rule_files": ["rules/*.yml"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": ["127.0.0.1:9093"]}]}]},
        "scrape_configs": [_job(job) for job in JOBS],
    }


def _job(name: str) -> dict[str, Any]:
    job: dict[str, Any] = {"job_name": name}
    if name in _LOCAL:
        labels = {"instance": "surgetank-0"}
        job["static_configs"] = [{"targets": [_LOCAL[name]], "labels": labels}]
    job["file_sd_configs"] = [{"files": [f"targets/{name}/*.yml"]}]
    return job
