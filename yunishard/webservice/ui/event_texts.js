// Events in words, the same as those of `yunishard event list`; the numbers are in `common/messages/event_codes.py`.

import { amount, kindsOf } from "./units.js";

const ACTIONS = { 1: "changed", 2: "added", 3: "removed" };

/** Details that say everything, whatever the change is. */
const WHOLE = {
  202: "rejected",
  203: "new",
  204: "accepted",
  205: "starting",
  206: "running",
  207: "completing",
  208: "completed",
  209: "failing",
  210: "failed",
  211: "resuming",
  212: "expired",
  213: "waits: its queue runs enough applications",
  214: "its queue can run it",
  215: "waits: its user or group runs enough applications",
  216: "its user and groups can run it",
  300: "decommissioned",
  100: "ask cancelled",
  102: "ask timed out",
  500: "allocation stopped by the RM",
  501: "allocation preempted",
  502: "allocation timed out",
  503: "placeholder replaced",
  504: "allocation removed with its node",
};

/** Details that name the part that was added, removed or changed. */
const PARTS = {
  200: "allocation",
  201: "ask",
  302: "schedulable",
  303: "allocation",
  304: "capacity",
  306: "reservation",
  401: "dynamic queue",
  402: "type",
  403: "maximum",
  404: "guarantee",
  405: "application",
  407: "preemption",
  600: "limit of the user",
  601: "limit of the group",
  602: "group of an application",
  603: "usage of the user",
  604: "usage of the group",
};

export const TYPES = { 1: "ask", 2: "application", 3: "node", 4: "queue", 5: "user or group" };

/** The change in a few words, without the names of the objects. */
export function describeEvent(event) {
  const detail = event.eventChangeDetail ?? 0;
  const action = ACTIONS[event.eventChangeType] ?? "";
  if (WHOLE[detail]) return WHOLE[detail];
  const part = PARTS[detail] ?? (detail ? `detail ${detail}` : "");
  return [part, action].filter(Boolean).join(" ") || (event.type === 1 ? "waits" : "–");
}

/** The amounts of an event: "2 vcore, 4 GiB"; empty without any. */
export function amountsOf(event) {
  const resources = event.resource?.resources ?? {};
  return kindsOf(resources).map((kind) => amount(kind, resources[kind].value ?? 0)).join(", ");
}
