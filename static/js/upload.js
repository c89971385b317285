// The upload page: files go up several at a time, resumable; then the version is submitted and its checks appear.
import { follow } from "./live.js";
import { Hasher } from "./upload/hashing.js";
import { forget, heldElsewhere, hold, keep, records } from "./upload/kept.js";
import { dropped, picked } from "./upload/picking.js";
import { Row } from "./upload/row.js";
import { call, Problem, problemFrom, problemIn } from "./upload/server.js";
import { Transfer } from "./upload/transfer.js";
import { announce, pace, Rate, say, size } from "./upload/words.js";

const AT_ONCE = 3;
const SIZES_ASKED = 10000;
const byId = (id) => document.getElementById(id);
const form = byId("upload-form");
const button = byId("upload-submit");
const target = { endpoint: form.dataset.endpoint, version: null, known: new Set(), rate: new Rate() };
const transfers = [];
const rows = new Map();
const hashers = [];
let active = 0;
let running = false;
let over = false;
let shown = 0;

const count = (...states) => transfers.filter((one) => states.includes(one.state)).length;
const bytes = () => transfers.reduce((sum, one) => sum + (one.state === "done" ? one.size : one.sent), 0);
const allBytes = () => transfers.reduce((sum, one) => sum + one.size, 0);

function problem(message) {
  byId("upload-error").hidden = !message;
  byId("upload-error").textContent = message ?? "";
}

/* The list */
function changed(transfer) {
  rows.get(transfer)?.show({ isOver: over });
  if (transfer.told !== transfer.state) {
    transfer.told = transfer.state;
    if (transfer.state === "failed") announce(say("saidFailed", { path: transfer.path, why: transfer.problem.message }));
    else if (transfer.state === "done") announce(say("saidDone", { path: transfer.path, done: count("done"), all: transfers.length }));
    remember();
  }
  if (!shown) shown = setTimeout(summary, 200);
}

function summary() {
  clearTimeout(shown);
  shown = 0;
  const [all, done] = [transfers.length, count("done")];
  byId("upload-total").textContent = all && !running ? say("total", { all, size: size(allBytes()) }) : "";
  const panel = byId("upload-all");
  panel.hidden = !target.version || over;
  const [sent, whole] = [bytes(), allBytes()];
  const bar = panel.querySelector("progress");
  bar.value = whole ? (100 * sent) / whole : 0;
  bar.setAttribute("aria-valuetext", say("filesDone", { done, all }));
  panel.querySelector("[data-count]").textContent = say("filesDone", { done, all });
  panel.querySelector("[data-speed]").textContent = pace(sent, whole, target.rate);
  const [failed, missing] = [count("failed"), count("missing")];
  panel.querySelector("[data-trouble]").textContent = [failed && say("someFailed", { count: failed }), missing && say("someMissing", { count: missing })].filter(Boolean).join(" ");
  byId("pause-all").hidden = !running || !transfers.some((one) => one.isActive || one.state === "waiting");
  byId("resume-all").hidden = !running || !count("paused", "failed");
  button.hidden = running || over;
  const waiting = count("waiting");
  const rest = waiting ? say("goOn", { waiting, all }) : say("check");
  byId("submit-label").textContent = target.version ? rest : say("begin");
  const isBlocked = target.version && !waiting && done < all;
  if (!("off" in button.dataset)) button.disabled = Boolean(isBlocked);
}

function insert(transfer) {
  transfers.push(transfer);
  rows.set(transfer, new Row(transfer, { toggle, remove, choose: () => byId("files").click() }));
  byId("file-list").append(rows.get(transfer).element);
}

async function add({ files: found, name }) {
  if (over || "off" in button.dataset) return;
  problem(null);
  await ready;
  if (!target.version) await goOnWith(found);
  if (transfers.length + found.length > Number(form.dataset.mostFiles)) return problem(say("tooMany", { most: form.dataset.mostFiles }));
  for (const { file, path } of found) {
    const old = transfers.find((one) => one.path === path);
    if (old?.state === "missing" || old?.state === "failed") old.choose(file);
    else if (!old) {
      const transfer = new Transfer({ path, file, size: file.size, modified: file.lastModified }, target, changed);
      insert(transfer);
      if (file.size > Number(form.dataset.mostBytes)) {
        transfer.move("failed", new Problem(say("tooLarge", { most: size(Number(form.dataset.mostBytes)) }), { code: "too_large" }));
      }
    }
  }
  const model = form.elements.namedItem("model");
  if (!model.value && transfers.length) model.value = name;
  summary();
  remember();
  if (running) pump();
}

function toggle(transfer) {
  if (transfer.isActive) transfer.pause();
  else {
    transfer.resume();
    if (running) pump();
  }
  summary();
}

async function remove(transfer) {
  const row = rows.get(transfer).element;
  const next = row.nextElementSibling ?? row.previousElementSibling;
  try {
    await transfer.remove();
  } catch (error) {
    transfer.move("failed", problemFrom(error));
    return;
  }
  transfers.splice(transfers.indexOf(transfer), 1);
  rows.delete(transfer);
  row.remove();
  (next?.querySelector("button:not([hidden])") ?? byId("files")).focus();
  remember();
  summary();
  if (running) pump();
}

/* Sending */
function pump() {
  while (active < AT_ONCE) {
    const next = transfers.find((one) => one.state === "waiting");
    if (!next) break;
    work(next);
  }
  if (!active) settle();
}

async function work(transfer) {
  active += 1;
  transfer.state = "uploading";
  const hasher = hashers.pop() ?? new Hasher();
  await transfer.run(hasher);
  hashers.push(hasher);
  active -= 1;
  pump();
}

function settle() {
  for (const hasher of hashers.splice(0)) hasher.close();
  if (!transfers.length || count("done") < transfers.length) summary();
  else submit();
}

async function begin() {
  const answer = await call(form.action, { method: "POST", body: new FormData(form) });
  const document_ = await answer.json().catch(() => null);
  if (!answer.ok || !document_) {
    const errors = Object.values(document_?.errors ?? {}).flat();
    throw new Problem(errors.map((error) => error.message ?? error).join(" ") || say("answered", { status: answer.status }));
  }
  return { ...document_, at: Date.now(), project: form.dataset.project };
}

async function take(record) {
  Object.assign(target, record, { record });
  form.elements.namedItem("model").value = record.model;
  for (const name of ["model", "git_sha"]) form.elements.namedItem(name).readOnly = true;
  byId("version-link").href = record.page;
  byId("next-step").hidden = false;
  follow(record.topic);
  await askKnown();
}

// Sizes at which the server has something that we may read: such files are hashed first, and perhaps not sent.
async function askKnown() {
  const sizes = [...new Set(transfers.map((one) => one.size))].filter(Boolean).slice(0, SIZES_ASKED);
  if (!sizes.length) return;
  const answer = await call(`${target.api}files/known`, { method: "POST", json: { sizes } });
  if (answer.ok) target.known = new Set((await answer.json()).sizes);
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (running || over) return;
  if (!transfers.length) return problem(say("nofile"));
  problem(null);
  running = true;
  summary();
  try {
    if (!target.version) {
      const record = await begin();
      await hold(record.version);
      await take(record);
      remember();
    } else await askKnown();
    pump();
  } catch (error) {
    running = false;
    problem(error instanceof Problem ? error.message : say("connection"));
    summary();
  }
});

async function submit() {
  running = false;
  try {
    const answer = await call(target.submit, { method: "POST" });
    const html = await answer.text();
    byId("version-slot").innerHTML = html;
    htmx.process(byId("version-slot"));
    judge();
    if (!answer.ok) return summary();
    over = true;
    forget(target.version);
    for (const transfer of transfers) changed(transfer);
    announce(say("saidChecks"));
    summary();
    watch();
  } catch {
    problem(say("notSubmitted"));
    summary();
  }
}

// The stream shows each check as it ends; this slow poll is for when the stream is down.
function watch() {
  const timer = setInterval(async () => {
    const live = document.querySelector("#version-slot [data-version-state]");
    if (!live || !["uploading", "validating"].includes(live.dataset.versionState)) return clearInterval(timer);
    const answer = await call(target.progress).catch(() => null);
    if (answer?.ok) htmx.swap({ text: await answer.text(), target: live, swap: "outerMorph", sourceElement: live });
  }, 2000);
}

// Beneath each file stand the checks that speak of it.
function judge() {
  const said = new Map([...document.querySelectorAll("#version-slot [data-file-checks] > li")].map((one) => [one.dataset.path, one]));
  for (const [transfer, row] of rows) if (said.has(transfer.path)) row.judge(said.get(transfer.path));
}
document.addEventListener("flotilla:fragment", judge);
document.addEventListener("htmx:after:swap", judge);

/* All at once */
byId("pause-all").addEventListener("click", () => {
  for (const one of transfers) if (one.isActive || one.state === "waiting") one.pause();
  summary();
  byId("resume-all").focus();
});
byId("resume-all").addEventListener("click", () => {
  for (const one of transfers) if (one.state === "paused" || one.state === "failed") one.resume();
  pump();
  summary();
  byId("pause-all").focus();
});
byId("discard-all").addEventListener("click", () => ask(target, { done: count("done"), all: transfers.length, size: size(bytes()) }));

function ask(record, { done, all, size: held }) {
  const box = byId("upload-discard");
  box.hidden = false;
  box.dataset.version = record.version;
  box.dataset.api = record.api;
  box.querySelector("p").textContent = say("discard", { model: record.model, done, all, size: held });
  byId("discard-yes").focus();
}
byId("discard-no").addEventListener("click", () => {
  byId("upload-discard").hidden = true;
  byId("upload-submit").focus();
});
byId("discard-yes").addEventListener("click", async () => {
  const { version, api } = byId("upload-discard").dataset;
  for (const one of transfers) if (one.isActive || one.state === "waiting") one.pause();
  try {
    const answer = await call(`${api}abandon`, { method: "POST", json: { reason: say("discarded") } });
    // 404 and 409: it is gone or over already.
    if (!answer.ok && answer.status !== 404 && answer.status !== 409) throw await problemIn(answer);
    forget(version);
    running = false;
    location.assign(location.pathname);
  } catch (error) {
    problem(problemFrom(error).message);
  }
});

/* After a reload, or another day */
function remember() {
  if (!target.version || over) return;
  const files = transfers.map(({ path, size: bytes_, modified }) => ({ path, size: bytes_, modified }));
  keep({ ...target.record, files });
}

const unfinished = new Map();

async function showUnfinished() {
  const elsewhere = await heldElsewhere();
  for (const record of records(form.dataset.project)) {
    const answer = await call(record.standing).catch(() => null);
    // Somebody else's, or the server is away: it may come back.
    if (!answer?.ok || !answer.headers.get("Content-Type")?.includes("json")) continue;
    const standing = await answer.json();
    if (standing.state !== "uploading") {
      forget(record.version);
      continue;
    }
    const here = record.files.filter(({ path }) => standing.files[path]?.is_here).length;
    const sent = Object.values(standing.files).reduce((sum, { offset }) => sum + offset, 0);
    const facts = { model: record.model, done: here, all: record.files.length, rest: record.files.length - here, size: size(sent) };
    const notice = byId("unfinished").content.firstElementChild.cloneNode(true);
    const isOpen = elsewhere.has(record.version);
    notice.querySelector("p").textContent = say(isOpen ? "otherTab" : facts.rest ? "unfinished" : "unchecked", facts);
    notice.querySelector("[data-buttons]").hidden = isOpen;
    notice.querySelector("[data-go-on]").textContent = say(facts.rest ? "goOn" : "goOnChecking", { waiting: facts.rest, all: facts.all });
    notice.querySelector("[data-go-on]").addEventListener("click", async () => {
      await goOn(record);
      if (count("missing")) byId(record.files.some(({ path }) => path.includes("/")) ? "folder" : "files").click();
      button.focus();
    });
    notice.querySelector("[data-discard]").addEventListener("click", () => ask(record, facts));
    byId("upload-unfinished").append(notice);
    if (!isOpen) unfinished.set(record.version, { record, standing });
  }
}

async function goOn(record) {
  const { standing } = unfinished.get(record.version);
  if (!(await hold(record.version))) return problem(say("otherTab", { model: record.model }));
  byId("upload-unfinished").replaceChildren();
  unfinished.clear();
  for (const file of record.files) {
    const transfer = new Transfer(file, target, changed);
    insert(transfer);
    if (standing.files[file.path]) transfer.found(standing.files[file.path]);
    rows.get(transfer).show();
  }
  await take(record).catch(() => problem(say("connection")));
  summary();
}

// Files that were part of an unfinished upload belong to it when they are chosen again.
async function goOnWith(found) {
  const isOf = ({ files }) => files.some((one) => found.some(({ file, path }) => path === one.path && file.size === one.size && file.lastModified === one.modified));
  const match = [...unfinished.values()].find(({ record }) => isOf(record));
  if (match && !transfers.length) await goOn(match.record);
}

/* Choosing */
const zone = byId("dropzone");
for (const name of ["dragenter", "dragover"])
  zone.addEventListener(name, (event) => {
    event.preventDefault();
    zone.classList.add("over");
  });
for (const name of ["dragleave", "drop"]) zone.addEventListener(name, () => zone.classList.remove("over"));
zone.addEventListener("drop", async (event) => {
  event.preventDefault();
  add(await dropped(event.dataTransfer));
});
// A file dropped beside the zone must not replace the page.
for (const name of ["dragover", "drop"]) document.addEventListener(name, (event) => event.preventDefault());
for (const name of ["files", "folder"]) byId(name).addEventListener("change", () => add(picked(byId(name))));
byId("choose-folder").addEventListener("click", () => byId("folder").click());

addEventListener("beforeunload", (event) => {
  if (running && transfers.some((one) => one.isActive)) event.preventDefault();
});
const ready = showUnfinished();
ready.finally(() => (form.dataset.ready = ""));
summary();
