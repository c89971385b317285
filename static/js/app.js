// What every page has: theme, keyboard, jump palette, toasts, copy buttons, relative times, guarded forms.
import { refreshCountdowns } from "./countdown.js";
import { startEquivalents } from "./equivalent.js";
import { startLive } from "./live.js";

const html = document.documentElement;
const text = (name) => document.getElementById("ui-text")?.dataset[name] ?? "";

/* Theme */
function isDark() {
  const theme = html.dataset.theme;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}
export function setTheme(theme) {
  if (theme === "system") {
    localStorage.removeItem("flotilla-theme");
    delete html.dataset.theme;
  } else {
    localStorage.setItem("flotilla-theme", theme);
    html.dataset.theme = theme;
  }
  document.dispatchEvent(new CustomEvent("flotilla:theme"));
}

/* Toasts: from the server by the HX-Trigger header {"toast": {level, text, undo}} or by Django messages in the page. */
const TONES = { success: ["green", "circle-check"], error: ["red", "octagon-alert"], warning: ["amber", "triangle-alert"], info: ["blue", "info"] };
export function toast(level, message, undo) {
  const [tone, icon] = TONES[level] ?? TONES.info;
  const box = document.createElement("div");
  box.className = `toast-s tone-${tone}`;
  box.setAttribute("role", level === "error" ? "alert" : "status");
  const sprite = document.getElementById("ui-text").dataset.icons;
  box.innerHTML = `<svg class="icon" aria-hidden="true"><use href="${sprite}#${icon}"></use></svg><span class="grow"></span><button type="button" class="btn btn-quiet btn-xs" aria-label=""><svg class="icon" aria-hidden="true"><use href="${sprite}#x"></use></svg></button>`;
  box.querySelector("span").textContent = message;
  const close = box.querySelector("button");
  close.setAttribute("aria-label", text("dismiss"));
  close.addEventListener("click", () => box.remove());
  if (undo) close.before(undoForm(undo));
  document.getElementById("toasts").append(box);
  if (level === "error") return;
  // Who is about to press the button is given the time to.
  let gone = 0;
  const leave = () => (gone = setTimeout(() => box.remove(), undo ? 20000 : 7000));
  for (const stay of ["pointerenter", "focusin"]) box.addEventListener(stay, () => clearTimeout(gone));
  for (const go of ["pointerleave", "focusout"]) box.addEventListener(go, () => (clearTimeout(gone), leave()));
  leave();
}

// What takes it back is a form like that which did it: {"address", "fields"}.
function undoForm({ address, fields }) {
  const form = document.createElement("form");
  form.method = "post";
  form.action = address;
  for (const [name, value] of Object.entries({ ...fields, csrfmiddlewaretoken: text("csrf") })) {
    const input = Object.assign(document.createElement("input"), { type: "hidden", name, value });
    form.append(input);
  }
  const button = Object.assign(document.createElement("button"), { className: "btn btn-outline-s btn-xs", textContent: text("undo") });
  button.dataset.testid = "undo";
  form.append(button);
  return form;
}

/* Relative times stay true while the page is open. */
const STEPS = [[60, "second"], [3600, "minute"], [86400, "hour"], [2592000, "day"], [31536000, "month"], [Infinity, "year"]];
const SIZE = { second: 1, minute: 60, hour: 3600, day: 86400, month: 2592000, year: 31536000 };
const format = new Intl.RelativeTimeFormat(html.lang || "en", { numeric: "always", style: "short" });
function refreshTimes() {
  for (const element of document.querySelectorAll("time[data-relative]")) {
    const seconds = (Date.parse(element.dateTime) - Date.now()) / 1000;
    const [, unit] = STEPS.find(([limit]) => Math.abs(seconds) < limit);
    const value = format.format(Math.round(seconds / SIZE[unit]), unit);
    if (element.textContent !== value) element.textContent = value;
  }
}

/* Copy buttons */
async function copy(button) {
  const source = document.getElementById(button.dataset.copy);
  const value = source.value ?? source.textContent;
  try {
    await navigator.clipboard.writeText(value.trim());
  } catch {
    const area = document.createElement("textarea");
    area.value = value.trim();
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  toast("success", text("copied"));
}

/* Jump palette */
const palette = () => document.getElementById("palette");
function openPalette() {
  const sheet = palette();
  if (!sheet || sheet.open) return;
  sheet.showModal();
  const input = sheet.querySelector("input");
  input.select();
  htmx.trigger(input, "jump");
}
function movePalette(step) {
  const options = [...palette().querySelectorAll('[role="option"]')];
  if (!options.length) return;
  const current = options.findIndex((option) => option.getAttribute("aria-selected") === "true");
  const next = options[(current + step + options.length) % options.length];
  for (const option of options) option.setAttribute("aria-selected", String(option === next));
  palette().querySelector("input").setAttribute("aria-activedescendant", next.id);
  next.scrollIntoView({ block: "nearest" });
}

/* Keyboard: g then a letter goes, / searches, ? helps, j and k walk a list, u goes to Undo. */
let goUntil = 0;
const typing = (target) => target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
function walk(step) {
  const rows = [...document.querySelectorAll("table[data-walk] tbody a.title, [data-walk] a[data-row]")];
  if (!rows.length) return;
  const at = rows.indexOf(document.activeElement);
  rows[at === -1 ? (step > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + step, 0), rows.length - 1)].focus();
}
function onKey(event) {
  const sheet = palette();
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    openPalette();
    return;
  }
  if (sheet?.open) {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      movePalette(event.key === "ArrowDown" ? 1 : -1);
    } else if (event.key === "Enter") {
      event.preventDefault();
      sheet.querySelector('[aria-selected="true"]')?.click();
    }
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target) || document.querySelector("dialog[open]")) return;
  if (goUntil > Date.now()) {
    goUntil = 0;
    const target = document.querySelector(`[data-go="${CSS.escape(event.key)}"]`);
    if (target) {
      event.preventDefault();
      location.assign(target.href);
    }
  } else if (event.key === "g") goUntil = Date.now() + 1500;
  else if (event.key === "j" || event.key === "k") walk(event.key === "j" ? 1 : -1);
  else if (event.key === "u") document.querySelector("#toasts [data-testid=undo]")?.focus();
  else if (event.key === "?") document.getElementById("shortcuts")?.showModal();
  else if (event.key === "/") {
    event.preventDefault();
    const filter = document.querySelector("input[type=search][data-filter]");
    if (filter) filter.focus();
    else openPalette();
  }
}

document.addEventListener("keydown", onKey);
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy],[data-theme-set],[data-open],[data-close],[data-add-row],[data-remove-row],[data-print]");
  if (!button) return;
  const { copy: source, themeSet, open, addRow } = button.dataset;
  if (source) copy(button);
  else if (themeSet) setTheme(themeSet === "toggle" ? (isDark() ? "light" : "dark") : themeSet);
  else if (open === "palette") openPalette();
  else if (open) document.getElementById(open)?.showModal();
  else if ("close" in button.dataset) button.closest("dialog")?.close();
  else if (addRow) appendRow(addRow);
  else if ("removeRow" in button.dataset) removeRow(button);
});

/* Repeated form rows: a <template> holds an empty row whose names carry its placeholder; rows may have rows of their own. */
function appendRow(name) {
  const template = document.getElementById(`${name}-template`);
  const list = document.getElementById(`${name}-rows`);
  const index = Math.max(-1, ...[...list.children].map((row) => Number(row.dataset.rowIndex))) + 1;
  const holder = document.createElement("template");
  holder.innerHTML = template.innerHTML.replaceAll(template.dataset.placeholder, String(index));
  const row = holder.content.firstElementChild;
  list.append(row);
  row.querySelector("input:not([type=hidden]),select")?.focus();
  row.dispatchEvent(new Event("change", { bubbles: true }));
}
function removeRow(button) {
  const list = button.closest("[data-rows]");
  button.closest("[data-row-index]").remove();
  (list.parentElement.querySelector("[data-add-row]") ?? list).focus?.();
  list.dispatchEvent(new Event("change", { bubbles: true }));
}

/* The judgement of a form while one types: the sentences of #config-problems go to their fields, which are unfolded. */
document.addEventListener("htmx:after:swap", () => {
  const problems = document.getElementById("config-problems");
  if (!problems) return;
  for (const box of document.querySelectorAll("[data-errors]")) {
    const found = problems.querySelector(`[data-for="${CSS.escape(box.id)}"]`);
    if (box.textContent.trim() !== (found?.textContent.trim() ?? "")) box.replaceChildren(...[...(found?.children ?? [])].map((child) => child.cloneNode(true)));
    box.closest(".field")?.toggleAttribute("data-invalid", Boolean(found));
    if (found) for (let fold = box.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  }
});

/* A choice that changes what follows submits its filter form by itself. */
document.addEventListener("change", (event) => {
  if (event.target.matches("[data-autosubmit]")) event.target.form.requestSubmit();
});

/* Unsaved work warns before it is lost. */
let dirty = false;
document.addEventListener("input", (event) => {
  if (event.target.form?.matches("[data-guard]")) dirty = true;
});
document.addEventListener("submit", (event) => {
  dirty = false;
  // A second click while the first is on its way would send the form twice.
  const submit = event.submitter;
  if (submit && !event.target.matches("[data-hx-post],[hx-post],[method=dialog]")) setTimeout(() => (submit.disabled = true));
});
addEventListener("pageshow", () => document.querySelectorAll("button[type=submit]:disabled:not([data-off])").forEach((button) => (button.disabled = false)));
addEventListener("beforeunload", (event) => {
  if (dirty) event.preventDefault();
});

document.addEventListener("toast", (event) => toast(event.detail.level, event.detail.text, event.detail.undo));
for (const swapped of ["htmx:after:swap", "flotilla:fragment"]) {
  document.addEventListener(swapped, refreshTimes);
  document.addEventListener(swapped, refreshCountdowns);
}
document.addEventListener("htmx:error", () => toast("error", text("offline")));

for (const message of document.querySelectorAll("#messages [data-level]")) toast(message.dataset.level, message.textContent.trim(), message.dataset.undo && JSON.parse(message.dataset.undo));
// A narrow screen shows a part of the tabs: the one that is open belongs into it.
document.querySelector(".tabline [aria-current=page]")?.scrollIntoView({ block: "nearest", inline: "center" });
setInterval(refreshTimes, 10000);
setInterval(refreshCountdowns, 1000);
refreshTimes();
refreshCountdowns();
startEquivalents();
startLive();
