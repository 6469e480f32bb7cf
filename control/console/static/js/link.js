// Whether what is shown is still true: live, or how old, and why.

import { at, put } from "./dom.js";
import { span } from "./format.js";

const STALE = 3000; // ms without a frame
let heard = null;
let why = "";

export function live() {
  heard = performance.now();
  why = "";
}

export function lost(sentence) {
  why = sentence;
}

function check() {
  const age = heard === null ? null : performance.now() - heard;
  const stale = age === null ? why !== "" : age > STALE;
  document.body.dataset.link = stale ? "lost" : age === null ? "connecting" : "live";
  at("banner").hidden = !stale;
  if (!stale) return;
  const old = age === null ? "" : ` These numbers are ${span(age / 1e3)} old.`;
  put(at("banner"), `No connection to the sidecar${why ? `: ${why}` : ""}.${old} Trying again.`);
}

export function startLink() {
  setInterval(check, 500);
}
