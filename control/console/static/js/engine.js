// The engine: its batch by what binds it, its KV blocks as a map, its steps against their target.

import { at, make, pool, put } from "./dom.js";
import { count, seconds, share } from "./format.js";

const SLOTS = ["filled", "blocked_kv", "blocked_limit", "blocked_token_budget", "blocked_other", "no_work"];
const NAMES = {
  filled: "filled", no_work: "no work", blocked_kv: "held by KV", blocked_limit: "held by a limit",
  blocked_token_budget: "held by the token budget", blocked_other: "held by the scheduler",
};
const CELLS = 96;

const slots = pool(at("slots"), SLOTS.length, () => make("i"));
slots.forEach((node, index) => { node.dataset.slot = SLOTS[index]; });
const cells = pool(at("kv"), CELLS, () => make("i"));
const facts = pool(at("step-facts"), 4, () => {
  const name = make("dt");
  const value = make("dd");
  return { root: make("div", {}, name, value), name, value };
});

function showSlots(engine) {
  const shares = engine?.slots ?? {};
  slots.forEach((node) => { node.style.flexGrow = shares[node.dataset.slot] ?? 0; });
  const said = SLOTS.filter((slot) => shares[slot] >= 0.005).map((slot) => `${NAMES[slot]} ${share(shares[slot])}`);
  const text = said.length ? said.join(" · ") : engine ? "no steps of late" : "not connected";
  put(at("slots-text"), text);
  at("slots").setAttribute("aria-label", `Batch slots: ${text}`);
}

function showKv(kv) {
  const per = kv ? kv.blocks / CELLS : 1;
  const used = kv ? Math.ceil(kv.used / per) : 0;
  const cached = kv ? Math.ceil((kv.used + kv.cached) / per) : 0;
  const promised = kv ? Math.round(kv.promised / per) : 0;
  cells.forEach((cell, index) => {
    const name = index < used ? "used" : index < cached ? "cached" : "";
    const wanted = index < promised && index >= used ? `${name} promised`.trim() : name;
    if (cell.className !== wanted) cell.className = wanted;
  });
  const text = kv
    ? `KV ${share(kv.used / kv.blocks)} used · ${share(kv.cached / kv.blocks)} cached · ${share(kv.promised / kv.blocks)} promised`
    : "KV unknown";
  put(at("kv-text"), text);
  at("kv").setAttribute("aria-label", kv ? `${text}, of ${count(kv.blocks)} blocks` : text);
}

function showFacts(engine) {
  const steps = engine?.steps;
  const tone = (value) => (steps && value > steps.target ? "bad" : "");
  const shown = [
    ["Step p50", seconds(steps?.p50), tone(steps?.p50)],
    ["Step p99", seconds(steps?.p99), tone(steps?.p99)],
    ["Target", seconds(steps?.target), "soft"],
    ["Tokens/s", engine ? count(engine.prefill + engine.decode) : "–", ""],
  ];
  facts.forEach((fact, index) => {
    const [name, value, colour] = shown[index];
    put(fact.name, name);
    put(fact.value, value);
    if (fact.value.className !== colour) fact.value.className = colour;
  });
}

// What impatient clients take back leaves nothing to be silent about; the standstill goes on.
const silence = (engine) => (engine?.silent > 1 ? `no step for ${seconds(engine.silent)}` : "makes no steps");

export function showEngine({ engine, kv, state }) {
  put(at("running"), engine ? `${count(engine.running)} / ${count(engine.most)}` : "down");
  const held = engine?.held ? `next one held by ${engine.held.replaceAll("_", " ")}` : "sequences";
  put(at("slots-unit"), state === "stalled" ? silence(engine) : engine ? held : "not connected");
  at("engine").classList.toggle("alarm", state === "backend_down" || state === "stalled");
  showSlots(engine);
  showKv(kv);
  showFacts(engine);
}
