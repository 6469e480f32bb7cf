// The last ten minutes as four charts, drawn by uPlot; one cursor for all.

import { at, make, put } from "./dom.js";
import { rate, seconds, share, time } from "./format.js";
import { colour, onChange } from "./theme.js";

const SPAN = 600; // seconds
const HEIGHT = 142;

// Each series: column of the frames' points, its name, a colour of base.css, how it is drawn.
const CHARTS = [
  { title: "Arrivals and goodput", unit: "/s", format: (value) => `${rate(value)} /s`, axis: rate, series: [
    { column: "arrivals", name: "arrivals", colour: "soft", key: "soft" },
    { column: "retry", name: "retries", colour: "warn-fill", key: "warning" },
    { column: "good", name: "served", colour: "accent", key: "accent", fill: true },
  ] },
  { title: "Wait against threshold", unit: "s", format: seconds, axis: seconds, series: [
    { column: "wait", name: "predicted", colour: "accent", key: "accent", fill: true },
    { column: "oldest", name: "oldest", colour: "warn-fill", key: "warning" },
    { column: "threshold", name: "threshold", colour: "soft", key: "soft", dash: true },
  ] },
  { title: "Step time", unit: "s", format: seconds, axis: seconds, series: [
    { column: "p50", name: "p50", colour: "accent", key: "accent", fill: true },
    { column: "p99", name: "p99", colour: "warn-fill", key: "warning" },
    { column: "target", name: "target", colour: "soft", key: "soft", dash: true },
  ] },
  { title: "KV pool", unit: "share", format: share, axis: share, most: 1, series: [
    { column: "kv_used", name: "used", colour: "accent", key: "accent", fill: true },
    { column: "kv_cached", name: "cached", colour: "accent-soft", key: "faint" },
  ] },
];

let columns = { at: [] };
let plots = [];

const clockTime = (at) => time(at).slice(0, 5);

function faded(name) {
  const [red, green, blue] = colour(name).match(/[\d.]+/g);
  return `rgba(${red}, ${green}, ${blue}, .14)`;
}

function axes(chart) {
  const look = { stroke: colour("soft"), font: "11px system-ui, sans-serif", ticks: { show: false }, grid: { stroke: colour("line"), width: 1 } };
  return [
    { ...look, grid: { show: false }, size: 22, space: 70, incrs: [30, 60, 120, 300], values: (_, all) => all.map(clockTime) },
    { ...look, size: 54, space: 34, values: (_, all) => all.map((value) => chart.axis(value)) },
  ];
}

function build(chart, holder) {
  holder.replaceChildren();
  return new uPlot({
    width: holder.clientWidth || 300,
    height: HEIGHT,
    legend: { show: false },
    cursor: { sync: { key: "console" }, drag: { x: false, y: false }, points: { size: 6 }, y: false },
    scales: {
      x: { time: true, range: () => { const end = columns.at.at(-1) ?? SPAN; return [end - SPAN, end]; } },
      y: { range: (_, low, high) => [0, chart.most ?? Math.max((high ?? 0) * 1.15, 0.01)] },
    },
    axes: axes(chart),
    series: [{}, ...chart.series.map((line) => ({
      stroke: colour(line.colour), width: line.dash ? 1.25 : 1.75, dash: line.dash ? [5, 4] : undefined,
      fill: line.fill ? faded(line.colour) : undefined, points: { show: false },
    }))],
    hooks: { setCursor: [(plot) => showKeys(chart, plot.cursor.idx)] },
  }, data(chart), holder);
}

const data = (chart) => [columns.at, ...chart.series.map((line) => columns[line.column] ?? [])];

function showKeys(chart, index) {
  const place = index ?? columns.at.length - 1;
  const said = chart.series.map((line) => {
    const value = chart.format((columns[line.column] ?? [])[place]);
    put(line.value, value);
    return `${line.name} ${value}`;
  });
  put(chart.when, index === null || index === undefined ? "" : time(columns.at[index]));
  chart.holder.setAttribute("aria-label", `${chart.title}: ${said.join(", ")}`);
}

function lay(chart) {
  chart.when = make("span", { class: "when" });
  const keys = chart.series.map((line) => {
    line.value = make("b", { text: "–" });
    return make("span", { class: `key ${line.key} ${line.dash ? "dashed" : ""}` }, `${line.name} `, line.value);
  });
  chart.holder = make("div", { class: "plot", role: "img" });
  return make("figure", { class: "chart" }, make("figcaption", {}, make("h3", { text: chart.title }), ...keys, chart.when), chart.holder);
}

function draw() {
  plots = CHARTS.map((chart) => build(chart, chart.holder));
}

export function startCharts() {
  at("charts").replaceChildren(...CHARTS.map(lay));
  draw();
  onChange(draw);
  new ResizeObserver(() => plots.forEach((plot, index) => {
    const width = CHARTS[index].holder.clientWidth;
    if (width && width !== plot.width) plot.setSize({ width, height: HEIGHT });
  })).observe(at("charts"));
}

export function setHistory(history) {
  columns = { ...history, target: history.at.map(() => null) };
}

export function addPoint(frame) {
  const { point } = frame;
  if (columns.at.length && point.at <= columns.at.at(-1)) return;
  for (const [name, value] of Object.entries(point)) (columns[name] ??= []).push(value);
  (columns.target ??= []).push(null);
  const target = frame.engine?.steps?.target ?? columns.target.findLast((value) => value !== null) ?? null;
  columns.target.fill(target);
  if (columns.at.length > SPAN) for (const column of Object.values(columns)) column.shift();
}

export function showCharts() {
  plots.forEach((plot, index) => {
    plot.setData(data(CHARTS[index]));
    showKeys(CHARTS[index], plot.cursor.left >= 0 ? plot.cursor.idx : null);
  });
}
