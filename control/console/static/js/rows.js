// Short lists of name, bar and number, with room for a fixed number of them.

import { make, mark, pool, put } from "./dom.js";

function row() {
  const name = make("dt");
  const value = make("dd");
  const bar = make("i");
  return { root: make("div", {}, name, value, bar), name, value, bar };
}

export class Rows {
  constructor(parent, count) {
    this.rows = pool(parent, count, row);
  }

  // Each of `entries`: { name, value (text), part (0 to 1, of the bar), tone, zero, title }.
  show(entries) {
    this.rows.forEach((row, index) => {
      const entry = entries[index] ?? { name: "", value: "" };
      put(row.name, entry.name);
      put(row.value, entry.value);
      row.bar.style.width = `${Math.round(100 * Math.min(1, entry.part ?? 0))}%`;
      mark(row.root, "tone", entry.tone);
      mark(row.root, "zero", entry.zero ? "1" : null);
    });
  }
}
