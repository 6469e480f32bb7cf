// The history of limits: what changed, from what to what, who did it and why.

import { at, make, mark, pool, put } from "./dom.js";
import { amount, date, time, words } from "./format.js";

const ROWS = 6;

const entries = pool(at("journal-rows"), ROWS, () => {
  const [when, what, change, cause, why] = ["time", "b", "span", "span", "p"].map((tag) => make(tag));
  cause.className = "cause";
  why.className = "why";
  return { root: make("li", {}, make("div", { class: "head" }, when, what, change, cause), why), when, what, change, cause, why };
});

const shown = (value) => {
  if (typeof value === "boolean") return value ? "on" : "off";
  return typeof value === "string" ? value : amount(value);
};

export function showJournal({ journal }) {
  entries.forEach((row, index) => {
    const entry = journal[index];
    put(row.when, entry ? date(entry.at) + time(entry.at) : "");
    put(row.what, entry ? words(entry.what) : index ? "" : "No change yet");
    put(row.change, entry ? `${shown(entry.before)} → ${shown(entry.after)}` : "");
    put(row.cause, entry ? entry.cause : "");
    put(row.why, entry ? `${entry.who}: ${entry.why}` : "");
    mark(row.root, "empty", entry ? null : "1");
    row.root.title = entry ? `${entry.who}: ${entry.why}` : "";
  });
}
