// Arrivals, gate, queue and outcomes: the numbers below the stream.

import { at, mark, put } from "./dom.js";
import { count, rate, seconds, span, words } from "./format.js";
import { Rows } from "./rows.js";

const CALM = new Set(["ok", "cancelled"]);
const FAULTS = new Set(["backend_down", "circuit_open", "internal", "deadline"]);

const arrivals = new Rows(at("arrivals-rows"), 4);
const reasons = new Rows(at("gate-rows"), 4);
const classes = new Rows(at("queue-rows"), 4);
const outcomes = new Rows(at("outcome-rows"), 4);

function showArrivals({ arrivals: { first, retry, unread } }) {
  const all = first + retry + unread;
  put(at("arrivals-rate"), rate(all));
  const lane = (name, value, tone) => ({ name, value: rate(value), part: all ? value / all : 0, tone, zero: !value });
  arrivals.show([
    lane("First attempts", first),
    lane("Retries", retry, "warn"),
    lane("Refused unread", unread, "none"),
  ]);
  put(at("amplification"), first > 0 ? `${((first + retry) / first).toFixed(2)} arrivals per first attempt` : "");
}

function showGate({ gate, state, drain, limits }) {
  put(at("admitted-rate"), rate(gate.admitted));
  const all = gate.admitted + gate.refused;
  reasons.show(gate.reasons.map(([name, value]) => ({ name: words(name), value: rate(value), part: value / all, tone: "warn" })));
  at("gate").classList.toggle("hold", state === "draining");
  const closed = drain ? `closed by ${drain.who}` : state === "backend_down" ? "closed: no engine" : "";
  const rung = limits.find((line) => line.name === "brownout_level")?.value ?? 0;
  const refused = gate.refused ? `${rate(gate.refused)} /s refused` : "nothing refused";
  put(at("gate-foot"), closed || (rung ? `${refused} · brown-out rung ${rung}` : refused));
}

function showQueue({ queue }) {
  put(at("queue-length"), count(queue.requests));
  put(at("queue-unit"), queue.tokens ? `waiting, ${count(queue.tokens)} tokens` : "waiting");
  const wait = queue.wait?.seconds ?? queue.oldest ?? 0;
  const ratio = queue.threshold ? wait / queue.threshold : 0;
  const meter = at("wait");
  meter.firstElementChild.style.width = `${Math.min(100, ratio * 66.67)}%`;
  mark(meter, "tone", ratio > 1 ? "bad" : ratio > 0.75 ? "warn" : null);
  meter.setAttribute("aria-valuenow", Math.min(1, ratio / 1.5).toFixed(2));
  const said = queue.wait
    ? `wait ${seconds(wait)} of ${seconds(queue.threshold)}${wait > 0 ? `, by ${queue.wait.binding}` : ""}`
    : `oldest ${seconds(wait)} of ${seconds(queue.threshold)}; wait unknown`;
  put(at("wait-text"), said);
  meter.setAttribute("aria-valuetext", said);
  const most = Math.max(1, queue.requests);
  classes.show(queue.levels.map((level) => {
    const waiting = level.first + level.retry;
    return {
      name: level.priority,
      value: waiting ? `${count(waiting)} · ${seconds(level.oldest)}` : "0",
      part: waiting / most,
      tone: level.oldest > queue.threshold ? "warn" : null,
      zero: !waiting,
    };
  }));
}

function showOutcomes(frame) {
  const served = frame.outcomes.ok ?? 0;
  put(at("served-rate"), rate(served));
  const all = Object.values(frame.outcomes).reduce((sum, value) => sum + value, 0);
  const others = Object.entries(frame.outcomes).filter(([name]) => name !== "ok").sort((one, two) => two[1] - one[1]);
  outcomes.show(others.map(([name, value]) => ({
    name: words(name),
    value: rate(value),
    part: value / all,
    tone: FAULTS.has(name) ? "bad" : CALM.has(name) ? "none" : "warn",
  })));
  put(at("tokens"), `${count(frame.output_tokens)} tokens/s · ${count(frame.in_flight)} in flight`);
}

export function showStages(frame) {
  showArrivals(frame);
  showGate(frame);
  showQueue(frame);
  showOutcomes(frame);
  if (frame.state === "idle") put(at("amplification"), `none for ${span(frame.idle_for)}`);
}
