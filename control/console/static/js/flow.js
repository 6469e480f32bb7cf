// The path as a stream: how much comes, how much the gate turns away, how much is served. Widths
// are rates, on one scale for the whole picture; the scale follows the last minute's most.

import { at } from "./dom.js";
import { rate } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const MEMORY = 60;
const recent = [];

function part(tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text) node.textContent = text;
  return node;
}

const middle = (id, box) => {
  const stage = at(id).getBoundingClientRect();
  return stage.left + stage.width / 2 - box.left;
};

// Where things happen along the strip: under their own stage where those stand in a row.
function places(box) {
  const stages = ["gate", "queue", "outcomes"].map((id) => at(id).getBoundingClientRect().top);
  if (new Set(stages.map(Math.round)).size === 1) {
    return { gate: middle("gate", box), queue: middle("queue", box), end: middle("outcomes", box) };
  }
  return { gate: box.width * 0.3, queue: box.width * 0.5, end: box.width * 0.8 };
}

const band = (x0, x1, top0, thick0, top1 = top0, thick1 = thick0) => {
  const bend = (x0 + x1) / 2;
  return `M${x0},${top0}C${bend},${top0} ${bend},${top1} ${x1},${top1}L${x1},${top1 + thick1}C${bend},${top1 + thick1} ${bend},${top0 + thick0} ${x0},${top0 + thick0}Z`;
};

export function showFlow(frame) {
  const svg = at("flow");
  const box = svg.getBoundingClientRect();
  const { gate, queue, end } = places(box);
  const failed = Object.entries(frame.outcomes)
    .filter(([name]) => !["ok", "cancelled"].includes(name))
    .reduce((sum, [, value]) => sum + value, 0);
  const { first, retry, unread } = frame.arrivals;
  const served = frame.outcomes.ok ?? 0;
  const refused = frame.gate.refused + unread;
  const late = Math.max(0, failed - refused);
  recent.push(Math.max(first + retry + unread, served + late, 0.5));
  if (recent.length > MEMORY) recent.shift();
  const height = box.height;
  const scale = (height * 0.5) / Math.max(...recent);
  const thick = (value) => (value > 0 ? Math.max(1.5, value * scale) : 0);
  const [a, b, c] = [thick(first), thick(retry), thick(unread)];
  const [admitted, dropped, done, lost] = [frame.gate.admitted, refused, served, late].map(thick);
  const top = 4;
  const fall = Math.min(90, box.width * 0.12);
  const parts = [
    part("line", { class: "base", x1: 0, x2: box.width, y1: top, y2: top }),
    part("path", { class: "first", d: band(0, gate, top, a) }),
    part("path", { class: "retry", d: band(0, gate, top + a, b) }),
    part("path", { class: "unread", d: band(0, gate, top + a + b, c) }),
    part("path", { class: "admitted", d: band(gate, queue, top, admitted) + band(queue, end, top, admitted, top, Math.max(done + lost, 0.01)) }),
    part("path", { class: "refused", d: band(gate, gate + fall, top + admitted, dropped, height - dropped, dropped) }),
    part("path", { class: "served", d: band(end, box.width, top, done) }),
    part("path", { class: "failed", d: band(end, end + fall, top + done, lost, height - lost, lost) }),
  ];
  if (refused > 0) parts.push(part("text", { x: gate + fall + 8, y: height - 5 }, `${rate(refused)} /s turned away`));
  if (late > 0) parts.push(part("text", { x: end + 8, y: height - 5, "text-anchor": "end", dx: -16 }, `${rate(late)} /s not served`));
  svg.replaceChildren(...parts);
}
