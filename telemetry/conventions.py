"""OpenTelemetry's names for what we tell, pinned: the one file to change when they change.

HTTP, RPC, error and service names are those of the semantic conventions' schema below. GenAI names
are those that the same release still lists; they have since moved to a repository of their own
(open-telemetry/semantic-conventions-genai), without a released schema so far. What OpenTelemetry
has no word for begins with `surgetank.`.
"""

from surgetank.telemetry.metricspec import PREFIX

VERSION = "1.44.0"
SCHEMA_URL = f"https://opentelemetry.io/schemas/{VERSION}"

SERVICE_NAME = "service.name"
SERVICE_VERSION = "service.version"

HTTP_METHOD = "http.request.method"
HTTP_ROUTE = "http.route"
HTTP_STATUS = "http.response.status_code"
URL_PATH = "url.path"
URL_SCHEME = "url.scheme"
RPC_SYSTEM = "rpc.system.name"
RPC_METHOD = "rpc.method"
RPC_STATUS = "rpc.response.status_code"
ERROR_TYPE = "error.type"

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
MAX_TOKENS = "gen_ai.request.max_tokens"
CHOICES = "gen_ai.request.choice.count"
STREAM = "gen_ai.request.stream"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"

REQUEST_ID = "surgetank.request.id"
LANE = "surgetank.lane"
ATTEMPT = "surgetank.attempt"
PRIORITY = "surgetank.priority"
TENANT = "surgetank.tenant"
OUTCOME = "surgetank.outcome"
REASON = "surgetank.reason"
DECISION = "surgetank.decision"
MEASURED = "surgetank.measured"
LIMIT = "surgetank.limit"
LIMIT_NAME = "surgetank.limit.name"
RETRY_AFTER = "surgetank.retry_after"
PREDICTED_WAIT = "surgetank.predicted_wait"
THRESHOLD = "surgetank.wait_threshold"
AHEAD = "surgetank.queue.ahead"
TPOT = "surgetank.time_per_output_token"
LONGEST_GAP = "surgetank.longest_gap"
BACKEND = "surgetank.backend"
LINK = "surgetank.link"

# Our histograms beside OpenTelemetry's server metrics: same meaning, same unit (seconds).
METRICS = {
    "gen_ai.server.request.duration": f"{PREFIX}request_duration_seconds",
    "gen_ai.server.time_to_first_token": f"{PREFIX}request_time_to_first_token_seconds",
    "gen_ai.server.time_per_output_token": f"{PREFIX}request_time_per_output_token_seconds",
}
