// The first thing that is read: the state in one word, the verdict in one sentence, what to do next.

import { at, mark, put } from "./dom.js";
import { span } from "./format.js";

const SENTENCES = {
  healthy: ["ok", "Healthy"],
  compute: ["warn", "Compute: more work than the engine can do in time"],
  memory: ["warn", "Memory: the KV pool is what is short"],
  scheduling: ["warn", "Scheduling: the engine has room and is not filled"],
  limit: ["warn", "Limit: one of our own limits holds work back"],
  clients: ["bad", "Clients: retries make up the load"],
  backend: ["bad", "Backend: the engine fails"],
};

function state(frame) {
  switch (frame.state) {
    case "draining": return ["warn", frame.drain?.expires_in ? `draining, ${span(frame.drain.expires_in)}` : "draining"];
    case "backend_down": return ["bad", "engine down"];
    case "stalled": return ["bad", "stalled"];
    case "idle": return ["none", "no traffic"];
    default: return ["ok", "ready"];
  }
}

function sentence(frame) {
  if (frame.state === "draining" && frame.drain) {
    return ["warn", `Draining: ${frame.drain.why}`, `by ${frame.drain.who}; new requests are refused, ${frame.in_flight} in flight complete`];
  }
  if (frame.state === "idle" && frame.verdict.word === "healthy") {
    return ["none", "No traffic", `nothing has arrived for ${span(frame.idle_for)}; the engine is there and waits`];
  }
  if (frame.state === "backend_down") return ["bad", frame.engines.length > 1 ? "Backend: no engine gets requests" : "Backend: the engine is not connected", null];
  if (frame.state === "stalled") return ["bad", "Backend: the engine stands still", null];
  const [tone, said] = SENTENCES[frame.verdict.word] ?? ["warn", frame.verdict.word];
  return [tone, said, null];
}

export function showVerdict(frame) {
  const [tone, word] = state(frame);
  mark(at("state"), "tone", tone);
  put(at("state-word"), word);
  const [mood, said, first] = sentence(frame);
  mark(at("verdict"), "tone", mood);
  put(at("verdict-word"), said);
  const lines = [...(first ? [first] : []), ...frame.verdict.evidence];
  [...at("evidence").children].forEach((line, index) => put(line, lines[index]));
  put(at("next"), frame.verdict.next);
  at("next").title = frame.verdict.next;
  put(at("model"), [frame.model ?? "no engine", frame.device, `up ${span(frame.uptime)}`].filter(Boolean).join(" · "));
  put(at("version"), `Surgetank ${frame.version}`);
}
