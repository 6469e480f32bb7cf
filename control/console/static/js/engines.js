// Where several engines stand behind the gate: each one's state, its share of the work, its drain.

import { at, make, mark, pool, put } from "./dom.js";
import { count, seconds, share, span } from "./format.js";

const STATES = {
  up: "up", slow_start: "slow start", draining: "draining", ejected: "ejected", down: "down",
  other_model: "serves another model", prefill_only: "prefill alone",
};
const TONES = { ejected: "bad", down: "bad", other_model: "bad", draining: "warn", slow_start: "warn" };
let rows = [];

function build(line, act) {
  const name = make("td", { text: line.name, title: line.maker });
  const state = make("td");
  const [running, wait, kv] = Array.from({ length: 3 }, () => make("td", { class: "n" }));
  const [requests, affine, moved, ejections] = Array.from({ length: 4 }, () => make("td", { class: "n roomy" }));
  const button = make("button", { type: "button", class: "quiet" });
  button.addEventListener("click", () => act(button.dataset.act, line.name));
  const root = make("tr", {}, name, state, running, wait, kv, requests, affine, moved, ejections, make("td", {}, button));
  return { root, state, running, wait, kv, requests, affine, moved, ejections, button };
}

function fill(row, line) {
  const back = line.back_in === null ? "" : `, back in ${span(line.back_in)}`;
  put(row.state, `${STATES[line.state]} for ${span(line.since)}${back}`);
  mark(row.state, "tone", TONES[line.state]);
  row.state.title = line.drain ? `${line.drain.who}: ${line.drain.why}` : "";
  put(row.running, `${count(line.running)} / ${count(line.slots)}`);
  put(row.wait, seconds(line.wait));
  put(row.kv, share(line.kv));
  put(row.requests, count(line.requests));
  put(row.affine, line.requests ? share(line.affine / line.requests) : share(null));
  put(row.moved, count(line.moved));
  put(row.ejections, count(line.ejections));
  row.button.dataset.act = line.drain ? "undrain_engine" : "drain_engine";
  put(row.button, line.drain ? "Undrain" : "Drain");
  row.button.setAttribute("aria-label", `${line.drain ? "Undrain" : "Drain"} ${line.name}`);
}

export function showEngines({ engines }, act) {
  at("engines").hidden = engines.length < 2;
  if (rows.length !== engines.length) {
    let next = 0;
    rows = pool(at("engine-rows"), engines.length, () => build(engines[next++], act));
  }
  rows.forEach((row, index) => fill(row, engines[index]));
}
