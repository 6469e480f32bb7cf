// Numbers as people read them: three figures that count, always with their unit beside them.

export const NONE = "–";

const known = (value) => value !== null && value !== undefined && Number.isFinite(value);
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export function rate(value) {
  if (!known(value)) return NONE;
  if (value >= 100) return whole.format(value);
  return value >= 10 || value === 0 ? value.toFixed(value === 0 ? 0 : 1) : value.toFixed(2);
}

export const count = (value) => (known(value) ? whole.format(value) : NONE);

export function seconds(value) {
  if (!known(value)) return NONE;
  if (value === 0) return "0 s";
  if (value < 0.0995) return `${(value * 1e3).toFixed(value < 0.00995 ? 1 : 0)} ms`;
  if (value < 9.95) return `${value.toFixed(2)} s`;
  return value < 120 ? `${value.toFixed(0)} s` : span(value);
}

export function span(value) {
  if (!known(value)) return NONE;
  const whole = Math.round(value);
  if (whole < 120) return `${whole} s`;
  if (whole < 7200) return `${Math.round(whole / 60)} min`;
  return whole < 172800 ? `${Math.round(whole / 3600)} h` : `${Math.round(whole / 86400)} d`;
}

export const share = (value) => (known(value) ? `${Math.round(value * 100)} %` : NONE);

// A measured value or a limit: at most four figures, no more than it has.
export function amount(value) {
  if (!known(value)) return NONE;
  if (Math.abs(value) >= 1000) return whole.format(value);
  return String(Number(value.toPrecision(4)));
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

export const time = (at) => clock.format(at * 1e3);
export const date = (at) => {
  const then = new Date(at * 1e3);
  return then.toDateString() === new Date().toDateString() ? "" : `${day.format(then)} `;
};

export const words = (name) => name.replaceAll("_", " ");
