// Times to come: the time of day where the reader is, and the time left, counted down without asking the server.
import { refresh } from "./live.js";

// Servers' clocks decide when something begins; this browser's may be wrong.
const started = performance.now();
const atStart = Date.parse(document.body.dataset.now) || Date.now();
const past = new Set();
const now = () => atStart + performance.now() - started;

const html = document.documentElement;
const day = new Intl.DateTimeFormat(html.lang || "en", { dateStyle: "medium" });
const both = new Intl.DateTimeFormat(html.lang || "en", { dateStyle: "medium", timeStyle: "short", hourCycle: "h23" });
const time = new Intl.DateTimeFormat(html.lang || "en", { timeStyle: "short", hourCycle: "h23" });

// Two units at most, as in the server's first rendering.
export function remaining(seconds) {
  const left = Math.max(0, Math.ceil(seconds));
  const [days, hours, minutes, rest] = [Math.floor(left / 86400), Math.floor(left / 3600) % 24, Math.floor(left / 60) % 60, left % 60];
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} min`;
  return minutes ? `${minutes} min ${rest} s` : `${rest} s`;
}

function write(element, value) {
  if (element.textContent !== value) element.textContent = value;
}

export function refreshCountdowns() {
  const here = now();
  for (const element of document.querySelectorAll("time[data-moment]")) {
    const moment = Date.parse(element.dateTime);
    write(element, day.format(moment) === day.format(here) ? time.format(moment) : both.format(moment));
  }
  for (const element of document.querySelectorAll("[data-elapsed]")) write(element, remaining((here - Date.parse(element.dataset.elapsed)) / 1000));
  const words = document.getElementById("ui-text").dataset.in;
  for (const element of document.querySelectorAll("[data-countdown]")) {
    const left = (Date.parse(element.dataset.countdown) - here) / 1000;
    write(element, `, ${words.replace("%s", remaining(left))}`);
    // Once for each moment: what it held up may start now, and the page says so without being loaded again.
    if (left <= 0 && !past.has(element.dataset.countdown)) {
      past.add(element.dataset.countdown);
      over(element);
    }
  }
}

function over(element) {
  const form = element.closest("form[hx-post]");
  // A second later, so that the server's clock is past it for certain.
  setTimeout(() => (form ? form.dispatchEvent(new Event("countdown-over")) : refresh()), 1000);
}
