// Numbers and times as text, in the forms of the command line.

const PREFIXES = ["", "k", "M", "G", "T", "P"];

// Formats a rate with three digits and a prefix: 14.9 M. A rate that is not known is a dash.
export function rate(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value > 0 && value < 0.05) return "<0.1";
  let at = 0;
  while (value >= 999.5 && at < PREFIXES.length - 1) {
    value /= 1000;
    at += 1;
  }
  const digits = value >= 99.95 || value === 0 ? 0 : value >= 9.995 ? 1 : at === 0 ? 1 : 2;
  return `${value.toFixed(digits)}${at === 0 ? "" : " " + PREFIXES[at]}`;
}

// Formats a count with groups of three digits.
export function count(value) {
  return Number(value).toLocaleString("en-US");
}

// Formats a share of 1 as a percentage with one digit.
export function percent(share) {
  if (!Number.isFinite(share)) return "–";
  return share >= 0.9995 ? "100 %" : `${(100 * share).toFixed(1)} %`;
}

// Formats a mean with one digit, a large one without, and a very large one with a prefix.
export function mean(value) {
  if (!Number.isFinite(value)) return "–";
  return value < 999.5 ? value.toFixed(1) : value < 99_999.5 ? count(Math.round(value)) : rate(value);
}

// Formats seconds as days, hours, minutes and seconds, from the first that is not 0.
export function duration(seconds) {
  const whole = Math.floor(seconds);
  const [days, hours, minutes] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60];
  if (days > 0) return `${days} d ${hours} h ${minutes} min`;
  if (hours > 0) return `${hours} h ${minutes} min`;
  if (minutes > 0) return `${minutes} min ${whole % 60} s`;
  return `${whole} s`;
}

// Formats seconds since the epoch as a time of the day.
export function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB");
}
