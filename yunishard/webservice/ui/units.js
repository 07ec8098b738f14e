// Amounts, times and names as people read them; the same units as on the command line.

const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const SECOND_NS = 1e9;

/** Whether an amount of this resource type is in bytes. */
export function isBytes(kind) {
  return kind === "memory" || kind === "ephemeral-storage" || kind === "storage" || kind.startsWith("hugepages-");
}

function decimal(value) {
  const shown = Math.abs(value) >= 100 ? value.toFixed(0) : value.toFixed(Math.abs(value) >= 10 ? 1 : 2);
  return shown.includes(".") ? shown.replace(/\.?0+$/, "") : shown;
}

/** Bytes with a binary unit: 13421772800 is "12.5 GiB". */
export function bytes(value) {
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < BYTES.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${decimal(value)} ${BYTES[unit]}`;
}

/** An amount without the name of its type, unless the unit is part of it: "40", "12.5 GiB". */
export function figure(kind, value) {
  if (isBytes(kind)) return bytes(value);
  return kind === "vcore" ? decimal(value / 1000) : value.toLocaleString("en");
}

/** An amount in base units: "40 vcore", "12.5 GiB", "3 gpu". */
export function amount(kind, value) {
  return kind === "memory" ? bytes(value) : `${figure(kind, value)} ${kind}`;
}

/** Resource types in the order of the columns: cores and memory first. */
export function kindsOf(...maps) {
  const found = new Set(maps.flatMap((one) => Object.keys(one ?? {})));
  return ["vcore", "memory"].filter((one) => found.delete(one)).concat([...found].sort());
}

/** All amounts of a resource: "2 vcore, 4 GiB"; "none" without any. */
export function amounts(resource) {
  const shown = kindsOf(resource).filter((kind) => resource[kind] !== 0);
  return shown.length ? shown.map((kind) => amount(kind, resource[kind])).join(", ") : "none";
}

/** A reason code as words: "node-full" is "node full". */
export function words(code) {
  return code.replaceAll("-", " ");
}

export function count(value) {
  return value.toLocaleString("en");
}

const STEPS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

/** A number of seconds with its two largest units: "3 min 20 s". */
export function duration(seconds) {
  const parts = [];
  let rest = Math.max(0, Math.round(seconds));
  for (const [unit, size] of STEPS) {
    if (rest >= size && parts.length < 2) {
      parts.push(`${Math.floor(rest / size)} ${unit}`);
      rest %= size;
    } else if (parts.length) {
      break;
    }
  }
  return parts.join(" ") || "0 s";
}

/** A time in Unix nanoseconds, relative to now: "3 min ago". */
export function ago(ns, nowMs = Date.now()) {
  const seconds = nowMs / 1000 - ns / SECOND_NS;
  if (seconds < 1) return "just now";
  for (const [unit, size] of STEPS) if (seconds >= size) return `${Math.floor(seconds / size)} ${unit} ago`;
  return "just now";
}

/** A time in Unix nanoseconds: "2026-01-31 12:00:05", in the zone of the browser. */
export function time(ns) {
  const at = new Date(ns / 1e6);
  const two = (number) => String(number).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** The share of an amount, from 0 to 1; 0 without a total. */
export function share(used, total) {
  return total > 0 ? Math.min(1, Math.max(0, used / total)) : 0;
}

export function percent(used, total) {
  return total > 0 ? `${Math.floor((used / total) * 100)} %` : "–";
}
