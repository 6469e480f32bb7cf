// One key per act; listed with ?. Silent while something is typed or a dialog is open.

import { at, make } from "./dom.js";

function focus(id) {
  at(id).focus({ preventScroll: true });
  at(id).scrollIntoView({ block: "start" });
}

export function startKeys(acts) {
  const keys = {
    v: ["To the verdict", () => focus("verdict")],
    l: ["Set a limit", acts.limit],
    x: ["Clear an override", acts.clear],
    b: ["Shed low classes", acts.shed],
    d: ["Drain, or end the drain", acts.drain],
    c: ["Copy the next command", acts.copy],
    e: ["To the engines, where there are several", () => focus("engines-title")],
    m: ["To the limits", () => focus("limits-title")],
    j: ["To the changes", () => focus("journal-title")],
    r: ["To the last refusals", () => focus("refusals-title")],
    t: ["Dark or light", acts.theme],
    "?": ["This list", () => at("help").showModal()],
  };
  at("keys").replaceChildren(...Object.entries(keys).flatMap(([key, [meaning]]) => [
    make("dt", {}, make("kbd", { text: key })), make("dd", { text: meaning }),
  ]), make("dt", {}, make("kbd", { text: "Esc" })), make("dd", { text: "Close, changing nothing" }));
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.target.closest("input, select, textarea")) return;
    const found = keys[event.key];
    if (!found) return;
    event.preventDefault();
    found[1]();
  });
  document.querySelector("[data-help]").addEventListener("click", keys["?"][1]);
}
