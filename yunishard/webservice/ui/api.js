// Requests to the REST API: token, polling with entity tags, back-off.
//
// The dashboard has only the rights of its user: it sends the same requests as any REST client. The token stays in the
// session storage of the tab. There are no cookies, so another site cannot use it.

import { useEffect, useState } from "./html.js";

const ROOT = new URL("../ws/v1/", import.meta.url);
const TOKEN = "yunishard-token";
const PERIOD_MS = 2000; // between two requests of a poll
const BACK_OFF_MAX_MS = 60_000; // between two requests of a poll that fails
const COST_FACTOR = 20; // a poll waits this many times as long as its answer took, so that slow answers are rare
const TIMEOUT_MS = 30_000; // for one request, unless it is known to take longer

/** An answer with another status than 2xx, or none (status 0). */
export class RequestFailed extends Error {
  constructor(status, message, problems = []) {
    super(message);
    this.status = status;
    this.problems = problems;
  }
}

// Token ---------------------------------------------------------------------------------------------------------------

const listeners = new Set();
let isAsking = false;

/** Whether the API wants a token that the user has not given yet. */
export function useSignIn() {
  const [, redraw] = useState(0);
  useEffect(() => {
    const listener = () => redraw((one) => one + 1);
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, []);
  return isAsking;
}

function setAsking(wanted) {
  if (isAsking === wanted) return;
  isAsking = wanted;
  for (const listener of listeners) listener();
}

export function hasToken() {
  return Boolean(sessionStorage.getItem(TOKEN));
}

/** Use a token from now on; none signs out. */
export function setToken(token) {
  if (token) sessionStorage.setItem(TOKEN, token);
  else sessionStorage.removeItem(TOKEN);
  setAsking(false);
  restartPolls();
}

// Requests ------------------------------------------------------------------------------------------------------------

/** The address of an API path with its query; parameters without a value are left out. */
export function address(path, query = {}) {
  const url = new URL(path, ROOT);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, value);
  }
  return url.href;
}

/** A name as a segment of a path. Names of queues, users and groups are decoded twice. */
export function segment(name, isTwice = false) {
  return encodeURIComponent(isTwice ? encodeURIComponent(name) : name);
}

/** Send a request. Throws RequestFailed for anything but a 2xx, or a 304. */
export async function send(url, { method = "GET", headers = {}, body, timeoutMs = TIMEOUT_MS } = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const all = { Accept: "application/json", ...headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  const options = { method, headers: all, body, cache: "no-store", signal: AbortSignal.timeout(timeoutMs) };
  let answer;
  try {
    answer = await fetch(url, options);
  } catch (error) {
    const text = error.name === "TimeoutError" ? `no answer within ${timeoutMs / 1000} s` : "the web service is not reachable";
    throw new RequestFailed(0, text);
  }
  if (answer.ok || answer.status === 304) return answer;
  if (answer.status === 401) setAsking(true);
  throw await describe(answer);
}

async function describe(answer) {
  const text = await answer.text();
  try {
    const error = JSON.parse(text);
    return new RequestFailed(answer.status, error.message ?? text, error.problems ?? []);
  } catch {
    return new RequestFailed(answer.status, text.trim() || `status ${answer.status}`);
  }
}

/** The JSON answer of one request. */
export async function read(path, query) {
  return (await send(address(path, query))).json();
}

// Polls ---------------------------------------------------------------------------------------------------------------

const polls = new Map(); // by address: all that is polled now, or was polled and is shown while it is asked again
const IDLE_MAX = 40; // answers that are kept for a page to return to

class Poll {
  constructor(url) {
    this.url = url;
    this.state = { data: undefined, error: null, isLoading: true, at: 0 };
    this.viewers = new Set();
    this.periodMs = PERIOD_MS;
    this.etag = "";
    this.delayMs = 0;
    this.timer = 0;
    this.isRunning = false;
  }

  join(viewer, periodMs) {
    this.viewers.add(viewer);
    this.periodMs = periodMs;
    if (!this.isRunning && !this.timer) this.run();
  }

  leave(viewer) {
    this.viewers.delete(viewer);
    if (!this.viewers.size) this.pause();
  }

  pause() {
    clearTimeout(this.timer);
    this.timer = 0;
  }

  restart() {
    this.pause();
    this.delayMs = 0;
    if (this.viewers.size && !this.isRunning) this.run();
  }

  async run() {
    this.timer = 0;
    this.isRunning = true;
    const began = performance.now();
    try {
      const answer = await send(this.url, { headers: this.etag ? { "If-None-Match": this.etag } : {} });
      if (answer.status !== 304) {
        const data = await answer.json();
        this.etag = answer.headers.get("ETag") ?? "";
        this.show({ data, error: null, isLoading: false, at: Date.now() });
      } else if (this.state.error) {
        this.show({ ...this.state, error: null, at: Date.now() });
      }
      this.delayMs = Math.max(this.periodMs, COST_FACTOR * (performance.now() - began));
    } catch (error) {
      const isGone = error.status === 404 || error.status === 403 || error.status === 401;
      if (isGone) this.etag = "";
      this.show({ ...this.state, ...(isGone ? { data: undefined } : {}), error, isLoading: false });
      this.delayMs = Math.min(BACK_OFF_MAX_MS, Math.max(2 * this.delayMs, PERIOD_MS));
    }
    this.isRunning = false;
    if (this.viewers.size && this.periodMs && !document.hidden && !isAsking) {
      this.timer = setTimeout(() => this.run(), Math.min(this.delayMs, BACK_OFF_MAX_MS));
    }
  }

  show(state) {
    this.state = state;
    for (const viewer of this.viewers) viewer(state);
  }
}

/** Ask again at once for everything that is shown, after a change. */
export function refreshPolls() {
  restartPolls();
}

function restartPolls() {
  for (const poll of polls.values()) poll.restart();
}

document.addEventListener("visibilitychange", () => {
  for (const poll of polls.values()) document.hidden ? poll.pause() : poll.restart();
});

function findPoll(url) {
  let poll = polls.get(url);
  if (!poll) {
    poll = new Poll(url);
    polls.set(url, poll);
    for (const [other, one] of polls) {
      if (polls.size <= IDLE_MAX) break;
      if (!one.viewers.size && one !== poll) polls.delete(other);
    }
  }
  return poll;
}

/**
 * What a path answers, requested again every `periodMs`; 0 asks once. No path asks nothing.
 *
 * Returns {data, error, isLoading, at}: with an error, the data is the last that was received.
 */
export function usePoll(path, query, periodMs = PERIOD_MS) {
  const url = path ? address(path, query) : "";
  const [seen, setSeen] = useState({ url: "", state: null });
  useEffect(() => {
    if (!url) return undefined;
    const poll = findPoll(url);
    const viewer = (state) => setSeen({ url, state });
    viewer(poll.state);
    poll.join(viewer, periodMs);
    return () => poll.leave(viewer);
  }, [url, periodMs]);
  if (seen.url === url && seen.state) return seen.state;
  return (url && polls.get(url)?.state) || { data: undefined, error: null, isLoading: Boolean(url), at: 0 };
}

/** The rows of a table of the API as objects by column. */
export function rowsOf(table) {
  if (!table) return [];
  return table.rows.map((row) => Object.fromEntries(table.columns.map((column, index) => [column, row[index]])));
}
