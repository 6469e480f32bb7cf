// Prometheus' answers as Grafana's data frames, with the panel's field options applied.
import { createTheme, FieldType, getDisplayProcessor, toDataFrame } from '@grafana/data';

export const theme = createTheme({ colors: { mode: window.BOARD.theme } });

/** "{{label}}" of a legend, filled in from a series' labels. */
function legend(format, labels) {
  return format.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, label) => labels[label] ?? '').trim();
}

/** Whether an override is for a series of that name. */
function matches({ id, options }, name) {
  return id === 'byRegexp' ? new RegExp(options.slice(1, -1)).test(name) : options === name;
}

/** Finishes a field: how its values are written and coloured. */
function shown(field, panel, index, color) {
  const { defaults, overrides } = panel.fieldConfig;
  const own = overrides
    .filter(({ matcher }) => matches(matcher, field.config.displayName))
    .flatMap(({ properties }) => properties.map(({ id, value }) => [id, value]));
  const config = { color: { mode: color }, ...defaults, ...field.config, ...Object.fromEntries(own) };
  const numbers = field.values.filter(Number.isFinite);
  const [min, max] = numbers.length ? [Math.min(...numbers), Math.max(...numbers)] : [0, 0];
  const state = { seriesIndex: index, displayName: field.config.displayName, range: { min, max, delta: max - min } };
  const done = { ...field, config, state };
  done.display = getDisplayProcessor({ field: done, theme });
  return done;
}

/** A frame of finished fields; making it forgets their state. */
function framed(fields, refId) {
  const frame = toDataFrame({ refId, fields });
  frame.fields.forEach((field, index) => Object.assign(field, { state: fields[index].state }));
  return frame;
}

/** A range's answer on the whole grid of times, with null where there was nothing. */
function onGrid(points) {
  const { from, to, step } = window.BOARD;
  const found = new Map(points.map(([at, text]) => [Math.round((at - from) / step), Number(text)]));
  const length = Math.floor((to - from) / step) + 1;
  const numbers = Array.from({ length }, (_, slot) => found.get(slot) ?? null);
  return { times: numbers.map((_, slot) => (from + slot * step) * 1000), numbers };
}

function timeField(values) {
  const field = { name: 'Time', type: FieldType.time, values, config: {} };
  return { ...field, display: getDisplayProcessor({ field, theme }) };
}

/** Every series of every query of a panel: one frame each, in the order of the queries. */
export function seriesFrames(panel, results, color) {
  const series = panel.targets.flatMap((target) =>
    (results[target.refId] ?? []).map((found) => ({ target, found }))
  );
  return series.map(({ target, found }, index) => {
    const { times, numbers } = found.values
      ? onGrid(found.values)
      : { times: [found.value[0] * 1000], numbers: [Number(found.value[1])] };
    const value = {
      name: 'Value',
      type: FieldType.number,
      values: numbers,
      labels: found.metric,
      config: { displayName: legend(target.legendFormat, found.metric) || 'Value' },
    };
    return framed([timeField(times), shown(value, panel, index, color)], target.refId);
  });
}

/** An instant answer as one table: a column for each label, then the value. */
export function tableFrame(panel, results) {
  const rows = panel.targets.flatMap((target) => results[target.refId] ?? []);
  if (!rows.length) return null;
  const labels = [...new Set(rows.flatMap((row) => Object.keys(row.metric)))];
  const columns = labels.map((name) => ({
    name,
    type: FieldType.string,
    values: rows.map((row) => row.metric[name] ?? ''),
    config: {},
  }));
  const value = {
    name: 'Value',
    type: FieldType.number,
    values: rows.map((row) => Number(row.value[1])),
    config: {},
  };
  return framed([...columns, value].map((field, index) => shown(field, panel, index, 'thresholds')));
}

/** Cumulative buckets over time as cells of their own: edges rising, counts[edge][time]. */
export function heatCells(panel, results) {
  const rising = (results[panel.targets[0].refId] ?? [])
    .map((found) => ({ edge: Number(found.metric.le.replace('+Inf', 'Infinity')), found }))
    .sort((a, b) => a.edge - b.edge);
  if (!rising.length) return null;
  const times = [...new Set(rising.flatMap(({ found }) => found.values.map(([at]) => at)))].sort();
  const upTo = rising.map(({ found }) => new Map(found.values.map(([at, text]) => [at, Number(text)])));
  const counts = upTo.map((mine, row) =>
    times.map((at) => Math.max(0, (mine.get(at) ?? 0) - (row ? (upTo[row - 1].get(at) ?? 0) : 0)))
  );
  return { times: times.map((at) => at * 1000), edges: rising.map(({ edge }) => edge), counts };
}
