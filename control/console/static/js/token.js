// Asks for the admin token, once a tab.

import { at, put } from "./dom.js";
import { session } from "./session.js";

export function ask(refused) {
  const dialog = at("token");
  const form = at("token-form");
  put(at("token-wrong"), session.token ? `That token was not accepted: ${refused.message}` : "");
  if (!dialog.open) dialog.showModal();
  form.elements.token.focus();
  return new Promise((resume) => {
    form.addEventListener("submit", () => {
      session.token = form.elements.token.value;
      form.reset();
      resume();
    }, { once: true });
    dialog.addEventListener("cancel", (event) => event.preventDefault(), { once: true });
  });
}
