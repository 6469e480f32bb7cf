// Follows the sidecar: server-sent events over fetch, which unlike EventSource can carry a token.

import { headers, refusal } from "./api.js";

const SILENT = 5000; // ms without a byte: the connection is dead, whatever TCP thinks
const FIRST_WAIT = 500;
const LONGEST_WAIT = 5000;

// `on` has history(columns), frame(frame), lost(sentence, retryInMs), denied(refusal) -> Promise.
export async function follow(on) {
  let wait = FIRST_WAIT;
  for (;;) {
    let why = "it closed the connection";
    try {
      await read(on, () => { wait = FIRST_WAIT; });
    } catch (error) {
      if (error.status === 401) {
        await on.denied(error);
        continue;
      }
      why = error.name === "AbortError" ? "it fell silent" : error.message;
    }
    on.lost(why, wait);
    await new Promise((resume) => setTimeout(resume, wait));
    wait = Math.min(LONGEST_WAIT, wait * 2);
  }
}

async function read(on, onAlive) {
  const abort = new AbortController();
  let timer = setTimeout(() => abort.abort(), SILENT);
  try {
    const answer = await fetch("stream", { headers: headers(), signal: abort.signal, cache: "no-store" });
    if (!answer.ok) throw await refusal(answer);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => abort.abort(), SILENT);
      const events = (rest + value).split("\n\n");
      rest = events.pop();
      for (const event of events) {
        dispatch(event, on);
        onAlive();
      }
    }
  } finally {
    clearTimeout(timer);
  }
}

function dispatch(event, on) {
  const lines = event.split("\n");
  const field = (name) => lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
  on[field("event")](JSON.parse(field("data")));
}
