// The dialog for every act: fill in, see before and after, confirm. Enter goes on, Escape leaves.

import { ACTS, until } from "./acts.js";
import { at, make, put } from "./dom.js";
import { session } from "./session.js";

const dialog = at("act");
const form = at("act-form");
let limits = [];
let engines = [];
let act = null;
let kind = "";
let previewed = false;

const field = (name) => form.elements[name];
const line = () => limits.find((each) => each.name === (act.limit ?? field("name").value));

export function setChoices(frame) {
  ({ limits, engines } = frame);
}

// `chosen`: the limit or the engine that it is about, where that is known already.
export function open(name, chosen) {
  if (!limits.length || dialog.open) return;
  kind = name;
  act = ACTS[name];
  put(at("act-title"), act.title);
  put(at("act-about"), act.about);
  form.querySelectorAll("[data-field]").forEach((label) => {
    const wanted = act.fields.includes(label.dataset.field);
    label.hidden = !wanted;
    label.querySelector("input, select").disabled = !wanted;
  });
  offer("name", kind === "clear" ? limits.filter((each) => each.override) : limits, chosen);
  offer("engine", engines, chosen);
  form.querySelector("[data-endless]").hidden = !act.endless;
  field("ttl").value = act.endless ? "" : "600";
  field("why").value = "";
  field("who").value = session.who;
  field("force").checked = false;
  at("act-force").hidden = true;
  put(at("act-wrong"), "");
  showLimit();
  start();
  dialog.showModal();
  const first = chosen ? (act.fields.includes("value") ? "value" : "why") : act.fields[0] ?? "why";
  field(first).focus();
  if (first === "value") field("value").select();
}

function offer(name, choices, chosen) {
  if (!act.fields.includes(name)) return;
  field(name).replaceChildren(...choices.map((each) => make("option", { value: each.name, text: each.name })));
  if (chosen) field(name).value = chosen;
}

function showLimit() {
  const chosen = line();
  if (!chosen || !act.fields.includes("name")) return;
  field("value").value = chosen.value;
  put(at("act-unit"), chosen.unit);
  put(at("act-range"), `${chosen.meaning} Allowed: ${chosen.minimum} to ${chosen.maximum}.`);
}

function start() {
  previewed = false;
  put(at("act-submit"), "Preview");
  put(at("act-change"), "Nothing is changed before you confirm.");
}

const values = () => ({ ...Object.fromEntries(new FormData(form)), force: field("force").checked });

async function submit(event) {
  event.preventDefault();
  const chosen = line();
  const fields = values();
  put(at("act-wrong"), "");
  session.who = fields.who;
  at("act-submit").disabled = true;
  try {
    const change = await act.send(fields, chosen, { who: fields.who, why: fields.why, dry_run: !previewed });
    const subject = act.subject ? act.subject(fields) : `${change.what}: `;
    const said = `${act.words(change.before, chosen)} → ${act.words(change.after, chosen)}`;
    if (previewed) done(`${subject}${said} ${until(fields.ttl)}`.trim());
    else confirm(subject, said, until(fields.ttl));
  } catch (refused) {
    start();
    put(at("act-wrong"), refused.message);
    at("act-force").hidden = refused.code !== "would_worsen" || !act.forcible;
  } finally {
    at("act-submit").disabled = false;
    if (dialog.open) at("act-submit").focus();
  }
}

function confirm(subject, said, time) {
  previewed = true;
  at("act-change").replaceChildren(subject, make("b", { text: said }), ` ${time}`);
  put(at("act-submit"), "Confirm");
}

function done(text) {
  dialog.close();
  say(text);
}

let timer = 0;

export function say(text) {
  const said = at("said");
  put(said, text);
  said.hidden = false;
  clearTimeout(timer);
  timer = setTimeout(() => { said.hidden = true; }, 6000);
}

form.addEventListener("submit", submit);
form.addEventListener("input", (event) => {
  if (event.target.name === "name") showLimit();
  start();
});
for (const button of document.querySelectorAll("[data-close]")) {
  button.addEventListener("click", () => button.closest("dialog").close());
}
