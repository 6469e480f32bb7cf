// Puts the page together: one frame in, every part shown from it.

import { addPoint, setHistory, showCharts, startCharts } from "./charts.js";
import { open, say, setChoices } from "./dialog.js";
import { at, put } from "./dom.js";
import { showEngine } from "./engine.js";
import { showEngines } from "./engines.js";
import { showFlow } from "./flow.js";
import { showJournal } from "./journal.js";
import { startKeys } from "./keys.js";
import { showLimits } from "./limits.js";
import { live, lost, startLink } from "./link.js";
import { showRefusals } from "./refusals.js";
import { showStages } from "./stages.js";
import { follow } from "./stream.js";
import { toggle } from "./theme.js";
import { ask } from "./token.js";
import { showVerdict } from "./verdict.js";

let draining = false;

function show(frame) {
  live();
  draining = frame.drain !== null;
  document.body.dataset.state = frame.state;
  document.title = `${frame.state === "ready" ? frame.verdict.word : frame.state.replace("_", " ")} · Surgetank`;
  put(at("drain-button"), draining ? "Undrain" : "Drain");
  addPoint(frame);
  for (const part of [showVerdict, showStages, showEngine, showFlow, showJournal, showRefusals, setChoices, showCharts]) part(frame);
  showLimits(frame, open);
  showEngines(frame, open);
  document.body.dataset.frame = frame.number;
}

async function copy() {
  const command = at("next").textContent;
  try {
    await navigator.clipboard.writeText(command);
    say(`Copied: ${command}`);
  } catch {
    getSelection().selectAllChildren(at("next")); // without a secure context: for the hand to copy
    say("Selected; copy it with your keyboard");
  }
}

const acts = {
  limit: () => open("limit"),
  clear: () => (document.querySelector(".side.held") ? open("clear") : say("No limit is overridden")),
  shed: () => open("shed"),
  drain: () => open(draining ? "undrain" : "drain"),
  copy,
  theme: toggle,
};
document.querySelectorAll("[data-act]").forEach((button) => button.addEventListener("click", acts[button.dataset.act]));
document.querySelector("[data-theme-toggle]").addEventListener("click", toggle);
at("copy").addEventListener("click", copy);
startKeys(acts);
startCharts();
startLink();
follow({ history: setHistory, frame: show, lost, denied: ask });
