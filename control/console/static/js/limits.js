// Every limit: what holds, how much of it is taken, who holds it, and the two things to do about it.

import { at, make, mark, pool, put } from "./dom.js";
import { amount, seconds, share, span } from "./format.js";

const SHARES = new Set(["share"]);
const UNITS = { requests: "req", tokens: "tok", sequences: "seq", seconds: "s", choices: "", class: "", rung: "" };
let rows = [];

export function valueOf(value, unit) {
  return SHARES.has(unit) ? share(value) : `${amount(value)} ${UNITS[unit] ?? unit}`.trim();
}

function build(line, act) {
  const name = make("td", { title: line.meaning, text: line.name });
  const value = make("td", { class: "n" });
  const bar = make("i");
  const meter = make("div", { class: "meter", "aria-hidden": "true" }, bar);
  const used = make("span");
  const use = make("td", { class: "use" }, meter, used);
  const held = make("td", { class: "side" });
  const set = make("button", { type: "button", class: "quiet", text: "Set", "aria-label": `Set ${line.name}` });
  const clear = make("button", { type: "button", class: "quiet", text: "Clear", "aria-label": `Clear the override of ${line.name}` });
  set.addEventListener("click", () => act("limit", line.name));
  clear.addEventListener("click", () => act("clear", line.name));
  return { root: make("tr", {}, name, value, use, held, make("td", { class: "meaning", text: line.meaning }), make("td", {}, clear, set)), value, bar, meter, used, held, clear };
}

function fill(row, line) {
  put(row.value, valueOf(line.value, line.unit));
  const used = line.usage === null ? null : line.value ? line.usage / line.value : 1;
  row.meter.style.visibility = used === null ? "hidden" : "visible";
  row.bar.style.width = `${Math.min(100, 100 * (used ?? 0))}%`;
  mark(row.meter, "tone", used >= 0.9 ? "warn" : null);
  put(row.used, used === null ? "" : line.unit === "seconds" ? seconds(line.usage) : valueOf(line.usage, line.unit));
  const held = line.override;
  put(row.held, held ? `${held.who}, ${span(held.expires_in)} more; then ${valueOf(line.base, line.unit)}` : "");
  row.held.title = held ? held.why : "";
  row.held.classList.toggle("held", Boolean(held));
  row.clear.style.visibility = held ? "visible" : "hidden";
}

export function showLimits(frame, act) {
  if (rows.length !== frame.limits.length) {
    let next = 0;
    rows = pool(at("limit-rows"), frame.limits.length, () => build(frame.limits[next++], act));
  }
  rows.forEach((row, index) => fill(row, frame.limits[index]));
}
