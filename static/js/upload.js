// The upload page: files go up several at a time, resumable; then the version is submitted and its checks appear.
import { follow } from "./live.js";
import { Batch } from "./upload/batch.js";
import { forget, hold, keep } from "./upload/kept.js";
import { dropped, picked } from "./upload/picking.js";
import { Row } from "./upload/row.js";
import { call, Problem, problemFrom, problemIn } from "./upload/server.js";
import { Transfer } from "./upload/transfer.js";
import { hideUnfinished, showUnfinished } from "./upload/unfinished.js";
import { announce, pace, Rate, say, size } from "./upload/words.js";

const SIZES_ASKED = 10000;
const byId = (id) => document.getElementById(id);
const form = byId("upload-form");
const button = byId("upload-submit");
const target = { endpoint: form.dataset.endpoint, version: null, known: new Set(), rate: new Rate() };
const batch = new Batch(rested);
const rows = new Map();
let over = false;
let shown = 0;
let unfinished = [];

// What is wrong with a field stands at it, as after a form that was sent.
function wrong(errors) {
  for (const old of form.querySelectorAll(".field .errors")) old.remove();
  const rest = [];
  for (const [name, found] of Object.entries(errors)) {
    const text = [found].flat().map((error) => error.message ?? error).join(" ");
    const input = form.elements.namedItem(name);
    if (!input) {
      rest.push(text);
      continue;
    }
    const line = Object.assign(document.createElement("p"), { className: "errors", id: `${input.id}_error`, textContent: text });
    const field = input.closest(".field");
    field.dataset.invalid = "";
    field.append(line);
    input.setAttribute("aria-invalid", "true");
    input.setAttribute("aria-describedby", `${input.id}_helptext ${line.id}`);
    if (field === form.querySelector(".field[data-invalid]")) input.focus();
  }
  return rest.join(" ");
}
form.addEventListener("input", ({ target: input }) => {
  const field = input.closest(".field[data-invalid]");
  if (!field) return;
  delete field.dataset.invalid;
  input.removeAttribute("aria-invalid");
  field.querySelector(".errors")?.remove();
});

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
    else if (transfer.state === "done") announce(say("saidDone", { path: transfer.path, done: batch.count("done"), all: batch.length }));
  }
  if (!shown) shown = setTimeout(summary, 200);
}

function summary() {
  clearTimeout(shown);
  shown = 0;
  const [all, done, failed, missing, waiting] = [batch.length, ...["done", "failed", "missing", "waiting"].map((state) => batch.count(state))];
  byId("upload-total").textContent = all && !batch.isRunning ? say(all === 1 ? "totalOne" : "total", { all, size: size(batch.size) }) : "";
  const panel = byId("upload-all");
  panel.hidden = !target.version || over;
  const bar = panel.querySelector("progress");
  bar.value = batch.size ? (100 * batch.sent) / batch.size : 0;
  bar.setAttribute("aria-valuetext", say("filesDone", { done, all }));
  panel.querySelector("[data-count]").textContent = say("filesDone", { done, all });
  panel.querySelector("[data-speed]").textContent = pace(batch.sent, batch.size, target.rate);
  panel.querySelector("[data-trouble]").textContent = [failed && say("someFailed", { count: failed }), missing && say("someMissing", { count: missing })].filter(Boolean).join(" ");
  byId("pause-all").hidden = !batch.isRunning || (!batch.isMoving && !waiting);
  byId("resume-all").hidden = !batch.isRunning || !(failed + batch.count("paused"));
  button.hidden = batch.isRunning || over;
  byId("submit-label").textContent = !target.version ? say("begin") : waiting ? say("goOn", { waiting, all }) : say("check");
  if (!("off" in button.dataset)) button.disabled = Boolean(target.version && !waiting && done < all);
}

function insert(transfer) {
  batch.transfers.push(transfer);
  rows.set(transfer, new Row(transfer, { toggle, remove, choose: () => byId("files").click() }));
  byId("file-list").append(rows.get(transfer).element);
}

async function add({ files: found, name }) {
  if (over || "off" in button.dataset) return;
  problem(null);
  await ready;
  if (!target.version) await goOnWith(found);
  if (batch.length + found.length > Number(form.dataset.mostFiles) + found.filter(({ path }) => batch.find(path)).length) {
    return problem(say("tooMany", { most: form.dataset.mostFiles }));
  }
  const most = Number(form.dataset.mostBytes);
  for (const { file, path } of found) {
    const old = batch.find(path);
    if (old?.state === "missing" || old?.state === "failed") old.choose(file);
    else if (!old) {
      const transfer = new Transfer({ path, file, size: file.size, modified: file.lastModified }, target, changed);
      insert(transfer);
      if (file.size > most) transfer.move("failed", new Problem(say("tooLarge", { most: size(most) }), { code: "too_large" }));
    }
  }
  const model = form.elements.namedItem("model");
  if (!model.value && batch.length) model.value = name;
  summary();
  remember();
  batch.goOn();
}

function toggle(transfer) {
  if (transfer.isActive) transfer.pause();
  else transfer.resume();
  batch.goOn();
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
  rows.delete(transfer);
  row.remove();
  (next?.querySelector("button:not([hidden])") ?? byId("files")).focus();
  batch.delete(transfer);
  remember();
  summary();
}

/* Sending */
function rested() {
  if (batch.isComplete) submit();
  else summary();
}

async function begin() {
  const answer = await call(form.action, { method: "POST", body: new FormData(form) });
  const document_ = await answer.json().catch(() => null);
  if (!answer.ok || !document_) {
    throw new Problem(document_?.errors ? wrong(document_.errors) : say("answered", { status: answer.status }));
  }
  return { ...document_, at: Date.now(), project: form.dataset.project };
}

function take(record) {
  Object.assign(target, record, { record });
  form.elements.namedItem("model").value = record.model;
  for (const name of ["model", "git_sha"]) form.elements.namedItem(name).readOnly = true;
  byId("version-link").href = record.page;
  byId("next-step").hidden = false;
  follow(record.topic);
}

// Sizes at which the server has something that we may read: such files are hashed first, and perhaps not sent.
async function askKnown() {
  const sizes = [...new Set(batch.transfers.map((one) => one.size))].filter(Boolean).slice(0, SIZES_ASKED);
  const answer = await call(`${target.api}files/known`, { method: "POST", json: { sizes } });
  if (answer.ok) target.known = new Set((await answer.json()).sizes);
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (batch.isRunning || over) return;
  if (!batch.length) return problem(say("nofile"));
  problem(null);
  batch.isRunning = true;
  summary();
  try {
    if (!target.version) {
      const record = await begin();
      await hold(record.version);
      take(record);
      remember();
    }
    await askKnown();
    batch.run();
  } catch (error) {
    batch.isRunning = false;
    problem(error instanceof Problem ? error.message : say("connection"));
    summary();
  }
});

async function submit() {
  batch.isRunning = false;
  try {
    const answer = await call(target.submit, { method: "POST" });
    byId("version-slot").innerHTML = await answer.text();
    htmx.process(byId("version-slot"));
    if (!answer.ok) return summary();
    over = true;
    forget(target.version);
    judge();
    for (const transfer of batch.transfers) changed(transfer);
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
  batch.pause();
  summary();
  byId("resume-all").focus();
});
byId("resume-all").addEventListener("click", () => {
  batch.resume();
  summary();
  byId("pause-all").focus();
});
byId("discard-all").addEventListener("click", () => discard(target, { done: batch.count("done"), all: batch.length, size: size(batch.sent) }));

function discard({ version, api, model }, { done, all, size: held }) {
  const box = byId("upload-discard");
  box.hidden = false;
  Object.assign(box.dataset, { version, api });
  box.querySelector("p").textContent = say("discard", { model, done, all, size: held });
  byId("discard-yes").focus();
}
byId("discard-no").addEventListener("click", () => {
  byId("upload-discard").hidden = true;
  (target.version ? byId("discard-all") : button).focus();
});
byId("discard-yes").addEventListener("click", async () => {
  const { version, api } = byId("upload-discard").dataset;
  if (version === target.version) batch.pause();
  try {
    const answer = await call(`${api}abandon`, { method: "POST", json: { reason: say("discarded") } });
    // 404 and 409: it is gone or over already.
    if (!answer.ok && answer.status !== 404 && answer.status !== 409) throw await problemIn(answer);
    forget(version);
    location.assign(location.pathname);
  } catch (error) {
    problem(problemFrom(error).message);
  }
});

/* After a reload, or another day */
function remember() {
  if (!target.version || over) return;
  keep({ ...target.record, files: batch.transfers.map(({ path, size: bytes, modified }) => ({ path, size: bytes, modified })) });
}

async function goOn(record) {
  const { standing } = unfinished.find((one) => one.record === record);
  if (!(await hold(record.version))) return problem(say("otherTab", { model: record.model }));
  hideUnfinished();
  unfinished = [];
  for (const file of record.files) {
    const transfer = new Transfer(file, target, changed);
    insert(transfer);
    if (standing.files[file.path]) transfer.found(standing.files[file.path]);
    changed(transfer);
  }
  take(record);
  summary();
}

// Files that were part of an unfinished upload belong to it when they are chosen again.
async function goOnWith(found) {
  const isOf = ({ files }) => files.some((one) => found.some(({ file, path }) => path === one.path && file.size === one.size && file.lastModified === one.modified));
  const match = unfinished.find(({ record }) => isOf(record));
  if (match && !batch.length) await goOn(match.record);
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
  if (batch.isMoving) event.preventDefault();
});

const ready = showUnfinished(form.dataset.project, {
  discard,
  goOn: async (record) => {
    await goOn(record);
    if (batch.count("missing")) byId(record.files.some(({ path }) => path.includes("/")) ? "folder" : "files").click();
    button.focus();
  },
})
  // Without them new uploads work as ever.
  .catch(() => [])
  .then((free) => {
    unfinished = free;
    form.dataset.ready = "";
  });
summary();
