// Dark or light: the system's choice until the operator makes one.

import { session } from "./session.js";

const system = window.matchMedia("(prefers-color-scheme: dark)");
const listeners = [];

const isDark = () => (session.theme ? session.theme === "dark" : system.matches);

function apply() {
  if (session.theme) document.documentElement.dataset.theme = session.theme;
  listeners.forEach((listener) => listener());
}

export function toggle() {
  session.theme = isDark() ? "light" : "dark";
  apply();
}

export function onChange(listener) {
  listeners.push(listener);
}

// A colour of base.css as a canvas takes it.
export function colour(name) {
  const probe = document.createElement("i");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const resolved = getComputedStyle(probe).color;
  probe.remove();
  return resolved;
}

system.addEventListener("change", apply);
apply();
