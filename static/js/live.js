// One event stream a browser. The tab that holds the lock reads it and passes events to the others over a
// BroadcastChannel; when it closes, the lock moves on. Without the Web Locks API (plain http on a name other than
// localhost) each tab reads its own stream. Swaps are morphs: focus, selection, scroll and open menus survive.

const me = crypto.getRandomValues(new Uint32Array(2)).join("-");
const topicsOfPage = () => (document.body.dataset.topics ?? "").split(/[\s,]+/).filter(Boolean);
const channel = "BroadcastChannel" in window ? new BroadcastChannel("flotilla-live") : null;

let source = null;
let refreshing = false;
let leading = false;
let wanted = new Map();
let opened = "";
let broken = false;
let retry = 1000;
let timer = 0;

function show(state) {
  const dot = document.getElementById("live-state");
  if (!dot) return;
  dot.dataset.state = state;
  dot.textContent = (state === "live" ? dot.dataset.wordLive : dot.dataset.wordRetry) ?? "";
}

function deliver({ kind, data }) {
  if (kind === "fragment") swap(data.target, data.html);
  else if (kind === "notice") {
    document.dispatchEvent(new CustomEvent("flotilla:notice", { detail: data }));
    refreshOn(data.topic);
  }
  else if (kind === "state") {
    show(data);
    if (data === "retry") broken = true;
    else if (broken) {
      // Events were missed while the stream was down: read the page again and morph what is live.
      broken = false;
      refresh();
    }
  }
}

export function swap(selector, html) {
  const target = document.querySelector(selector);
  if (!target) return;
  const before = target.dataset.refreshKey;
  const fresh = new DOMParser().parseFromString(`<template>${html}</template>`, "text/html").querySelector("template").content;
  const root = fresh.firstElementChild;
  // A fragment that is the element itself replaces it, anything else is its content.
  const style = root && root.id === target.id ? "outerMorph" : "innerMorph";
  htmx.swap({ text: html, target, swap: style, sourceElement: target }).then(() => {
    document.dispatchEvent(new CustomEvent("flotilla:fragment", { detail: { selector } }));
    // What depends on the viewer (buttons, forms) is not in a fragment; it is read again when the state it shows moved.
    const after = document.querySelector(selector)?.dataset.refreshKey;
    if (before !== undefined && after !== before && !refreshing) refresh();
  });
}

// Parts that no fragment covers (lists, empty states) name the kinds of topics after which they are read again.
let refreshSoon = 0;
function refreshOn(topic) {
  const kind = topic.split(":")[0];
  const concerned = [...document.querySelectorAll("[data-refresh-on]")].some((element) => element.dataset.refreshOn.split(" ").includes(kind));
  if (!concerned) return;
  clearTimeout(refreshSoon);
  refreshSoon = setTimeout(refresh, 400);
}

export async function refresh() {
  if (refreshing) return;
  refreshing = true;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html", "Flotilla-Refresh": "1" }, credentials: "same-origin" });
    if (answer.redirected && new URL(answer.url).pathname !== location.pathname) return location.assign(answer.url);
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const element of page.querySelectorAll("[data-live][id]")) swap(`#${CSS.escape(element.id)}`, element.outerHTML);
  } catch {
    // Offline: the stream's own retry comes back here.
  } finally {
    refreshing = false;
  }
}

function tell(kind, data) {
  deliver({ kind, data });
  channel?.postMessage({ from: me, event: { kind, data } });
}

function connect() {
  const topics = [...new Set([...wanted.values()].flat())].sort().join(",");
  if (topics === opened && source && source.readyState !== EventSource.CLOSED) return;
  source?.close();
  source = null;
  opened = topics;
  if (!topics) return;
  source = new EventSource(`/live/stream?topics=${encodeURIComponent(topics)}`);
  source.addEventListener("open", () => {
    retry = 1000;
    tell("state", "live");
  });
  source.addEventListener("fragment", (event) => tell("fragment", JSON.parse(event.data)));
  source.addEventListener("notice", (event) => tell("notice", JSON.parse(event.data)));
  source.addEventListener("error", () => {
    tell("state", "retry");
    if (source?.readyState !== EventSource.CLOSED) return;
    clearTimeout(timer);
    timer = setTimeout(() => {
      opened = "";
      connect();
    }, retry);
    retry = Math.min(retry * 2, 30000);
  });
}

let soon = 0;
function reconnectSoon() {
  clearTimeout(soon);
  soon = setTimeout(connect, 150);
}

function lead() {
  leading = true;
  wanted.set(me, topicsOfPage());
  channel?.postMessage({ from: me, who: true });
  reconnectSoon();
}

let started = false;

// Follow one more topic from now on: what this page has just made.
export function follow(topic) {
  const topics = new Set(topicsOfPage());
  if (topics.has(topic)) return;
  document.body.dataset.topics = [...topics, topic].join(",");
  if (!started) return startLive();
  if (leading) {
    wanted.set(me, topicsOfPage());
    reconnectSoon();
  } else channel?.postMessage({ from: me, topics: topicsOfPage() });
}

export function startLive() {
  const topics = topicsOfPage();
  if (started || !topics.length || !("EventSource" in window)) return;
  started = true;
  channel?.addEventListener("message", ({ data }) => {
    if (data.event) deliver(data.event);
    else if (data.who) channel.postMessage({ from: me, topics: topicsOfPage() });
    else if (leading && data.bye) {
      wanted.delete(data.from);
      reconnectSoon();
    } else if (leading && data.topics) {
      wanted.set(data.from, data.topics);
      reconnectSoon();
      if (source?.readyState === EventSource.OPEN) channel.postMessage({ from: me, event: { kind: "state", data: "live" } });
    }
  });
  addEventListener("pagehide", () => {
    source?.close();
    channel?.postMessage({ from: me, bye: true });
  });
  addEventListener("pageshow", (event) => {
    // Back from the browser's cache: ask for the topics again and catch up.
    if (!event.persisted) return;
    channel?.postMessage({ from: me, topics: topicsOfPage() });
    refresh();
  });
  if (channel && navigator.locks) {
    // Held for the life of the page; the browser gives it to the next tab when this one goes.
    navigator.locks.request("flotilla-live", () => new Promise(() => lead()));
    channel.postMessage({ from: me, topics });
  } else lead();
  // The safety net under the stream: a page whose stream stays down reads itself again.
  setInterval(() => {
    if (document.visibilityState === "visible" && document.getElementById("live-state")?.dataset.state !== "live") refresh();
  }, 10000);
}
