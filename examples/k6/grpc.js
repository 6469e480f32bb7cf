// k6 against Surgetank's KServe v2 door: the service is found by reflection, no .proto is needed.
//
//   k6 run -e GRPC=127.0.0.1:8401 -e RATE=5 -e DURATION=30s examples/k6/grpc.js
import grpc from "k6/net/grpc";
import encoding from "k6/encoding";
import { check } from "k6";
import { Counter, Rate } from "k6/metrics";

const refused = new Counter("refused");
const served = new Rate("served");
const client = new grpc.Client();
let connected = false; // each VU keeps its connection

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

export default function () {
  if (!connected) {
    client.connect(__ENV.GRPC || "127.0.0.1:8401", { plaintext: true, reflect: true });
    connected = true;
  }
  const answer = client.invoke("inference.GRPCInferenceService/ModelInfer", {
    model_name: __ENV.MODEL || "default",
    inputs: [
      {
        name: "text_input",
        datatype: "BYTES",
        shape: [1],
        contents: { bytes_contents: [encoding.b64encode("The river rises in the hills and")] },
      },
    ],
    parameters: {
      max_tokens: { int64_param: Number(__ENV.TOKENS || 16) },
      ignore_eos: { bool_param: true },
    },
  });
  const ok = answer.status === grpc.StatusOK;
  served.add(ok);
  if (ok) {
    check(answer, { "there is a text": (a) => a.message.outputs[0].name === "text_output" });
  } else {
    const reason = (answer.trailers || {})["x-surgetank-reason"] || `status ${answer.status}`;
    refused.add(1, { reason: String(reason) });
  }
}
