// k6 against Surgetank's OpenAI door: open loop, refusals counted by reason, hints obeyed once.
//
//   k6 run -e URL=http://127.0.0.1:8400 -e RATE=5 -e DURATION=30s examples/k6/http.js
//
// The answers are streamed, but k6 reads each as a whole: http_req_waiting is the time to its
// first byte, which is the TTFT.
import http from "k6/http";
import { check, sleep } from "k6";
import { Counter, Rate, Trend } from "k6/metrics";

const URL = __ENV.URL || "http://127.0.0.1:8400";
const refused = new Counter("refused");
const served = new Rate("served");
const ttft = new Trend("ttft", true);

const REASONS = ["predicted_wait", "queue_requests", "kv_pressure", "retry_budget", "tenant_quota"];

export const options = {
  scenarios: {
    calls: {
      executor: "constant-arrival-rate",
      rate: Number(__ENV.RATE || 2),
      timeUnit: "1s",
      duration: __ENV.DURATION || "10s",
      preAllocatedVUs: Number(__ENV.VUS || 50),
    },
  },
  summaryTrendStats: ["avg", "med", "p(90)", "p(99)"],
  // Always met: k6 shows a counter by its tag only where a threshold names it.
  thresholds: Object.fromEntries(
    REASONS.map((reason) => [`refused{reason:${reason}}`, ["count>=0"]]),
  ),
};

function ask(attempt) {
  const body = {
    model: __ENV.MODEL || "default",
    prompt: "The river rises in the hills above the old town and",
    max_tokens: Number(__ENV.TOKENS || 16),
    temperature: 0,
    ignore_eos: true,
    stream: true,
  };
  return http.post(`${URL}/v1/completions`, JSON.stringify(body), {
    headers: { "Content-Type": "application/json", "x-surgetank-attempt": String(attempt) },
    // A refusal is an answer, not an error of the test.
    responseCallback: http.expectedStatuses(200, 429, 503, 504),
  });
}

export default function () {
  let answer = ask(0);
  if (answer.status !== 200) {
    refused.add(1, { reason: answer.headers["X-Surgetank-Reason"] || `HTTP ${answer.status}` });
    const wait = Number(answer.headers["Retry-After-Ms"]);
    if (wait > 0) {
      sleep(wait / 1000);
      answer = ask(1);
    }
  }
  served.add(answer.status === 200);
  if (answer.status === 200) {
    ttft.add(answer.timings.waiting);
    check(answer, { "the stream came to its end": (a) => a.body.includes("[DONE]") });
  }
}
