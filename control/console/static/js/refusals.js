// The last requests that were not served: the reason, what was measured, the limit, the hint.

import { at, make, mark, pool, put } from "./dom.js";
import { amount, seconds, time, words } from "./format.js";

const ROWS = 9;
const FAULTS = new Set(["backend_down", "circuit_open", "internal"]);

const rows = pool(at("refusal-rows"), ROWS, () => {
  const [when, reason, measured, limit, hint, level, id] = Array.from({ length: 7 }, () => make("td"));
  [measured, limit, hint].forEach((cell) => { cell.className = "n"; });
  [level, id].forEach((cell) => { cell.className = "roomy"; });
  const clock = make("time");
  const name = make("span", { class: "soft roomy" });
  const value = make("span");
  when.append(clock);
  limit.append(name, value);
  return { root: make("tr", {}, when, reason, measured, limit, hint, level, id), clock, reason, measured, name, value, hint, level, id };
});

export function showRefusals({ refusals }) {
  rows.forEach((row, index) => {
    const one = refusals[index];
    put(row.clock, one ? time(one.at) : "");
    put(row.reason, one ? words(one.reason) : index ? "" : "Nothing was refused");
    row.reason.className = one ? (FAULTS.has(one.outcome) ? "bad" : "") : "none";
    mark(row.reason, "empty", one ? null : "1");
    row.root.title = one ? one.message : "";
    put(row.measured, one && one.measured !== null ? amount(one.measured) : "");
    const limited = one && one.limit !== null;
    put(row.name, limited ? `${words(one.limit_name)} ` : "");
    put(row.value, limited ? amount(one.limit) : "");
    put(row.hint, one ? (one.hint === null ? "never" : `in ${seconds(one.hint)}`) : "");
    put(row.level, one ? `${one.priority}${one.lane === "retry" ? ", retry" : ""}` : "");
    put(row.id, one ? one.id : "");
    row.id.title = one ? one.id : "";
  });
}
