// Calls to the server, each with a deadline, and what its refusals mean.
import { Unreadable } from "./hashing.js";
import { say } from "./words.js";

const DEADLINE_MS = 60000;

// The cookie is read each time: whoever signs in again in another tab gets a new one.
export function csrf() {
  return document.cookie.match(/(?:^|; )flotilla_csrf=([^;]+)/)?.[1] ?? "";
}

export function call(url, { method = "GET", json, body, headers = {}, signal } = {}) {
  const limit = AbortSignal.timeout(DEADLINE_MS);
  return fetch(url, {
    method,
    body: json === undefined ? body : JSON.stringify(json),
    credentials: "same-origin",
    headers: {
      Accept: "application/json, text/html",
      ...(method === "GET" ? {} : { "X-CSRFToken": csrf() }),
      ...(json === undefined ? {} : { "Content-Type": "application/json" }),
      ...headers,
    },
    signal: signal ? AbortSignal.any([signal, limit]) : limit,
  });
}

// `again`: worth another try, after `wait` seconds where the server said so. `fresh`: from the first byte.
export class Problem extends Error {
  constructor(message, { code = "", status = 0, again = false, wait = 0, fresh = false } = {}) {
    super(message);
    Object.assign(this, { code, status, again, wait, fresh });
  }
}

const AGAIN = new Set([408, 409, 423, 425, 429, 460, 499, 500, 502, 503, 504]);

export function problemOf(status, text, retryAfter) {
  let [detail, code] = ["", ""];
  try {
    ({ detail = "", code = "" } = JSON.parse(text));
  } catch {
    // A proxy's page, not an answer of ours.
  }
  const isOut = status === 401 || code === "not_authenticated";
  if (isOut) detail = say("signedOut");
  return new Problem(detail || say("answered", { status }), {
    code: code || `http_${status}`,
    status,
    again: AGAIN.has(status),
    wait: Number(retryAfter) || 0,
    fresh: status === 404 || status === 410 || status === 422,
  });
}

export async function problemIn(answer) {
  return problemOf(answer.status, await answer.text(), answer.headers.get("Retry-After"));
}

export function problemFrom(error) {
  if (error instanceof Problem) return error;
  const inner = error.causingError ?? error;
  if (inner instanceof Unreadable) return new Problem(say("unreadable"), { code: "unreadable", fresh: true });
  const answer = error.originalResponse;
  if (answer?.getStatus()) return problemOf(answer.getStatus(), answer.getBody(), answer.getHeader("Retry-After"));
  return new Problem(say("connection"), { code: "connection", again: true });
}
