// Uploading: files go one after the other by tus, resumable; then the version is submitted and its checks appear.
import { follow } from "./live.js";

const form = document.getElementById("upload-form");
const list = document.getElementById("file-list");
const input = document.getElementById("files");
const zone = document.getElementById("dropzone");
const say = (name) => form.dataset[`text${name[0].toUpperCase()}${name.slice(1)}`] ?? "";
const csrf = () => form.elements.namedItem("csrfmiddlewaretoken").value;
const entries = [];
let version = null;
let running = false;

function size(bytes) {
  const power = bytes ? Math.min(4, Math.floor(Math.log2(bytes) / 10)) : 0;
  return `${(bytes / 2 ** (10 * power)).toFixed(power ? 1 : 0)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
}
function duration(seconds) {
  return seconds < 90 ? `${Math.ceil(seconds)} s` : `${Math.round(seconds / 60)} min`;
}
function problem(message) {
  const line = document.getElementById("upload-error");
  line.hidden = !message;
  line.textContent = message ?? "";
}

class Entry {
  constructor(file, path) {
    this.file = file;
    this.path = path;
    this.state = "waiting";
    this.row = document.getElementById("file-row").content.firstElementChild.cloneNode(true);
    this.part = (name) => this.row.querySelector(`[data-${name}]`);
    this.bar = this.row.querySelector("progress");
    this.part("name").textContent = path;
    this.part("size").textContent = size(file.size);
    this.bar.setAttribute("aria-label", path);
    this.part("toggle").addEventListener("click", () => this.toggle());
    this.part("remove").textContent = say("remove");
    this.part("remove").addEventListener("click", () => this.remove());
    list.append(this.row);
    this.show();
  }

  show(detail = "") {
    this.part("state").textContent = [say(this.state), detail].filter(Boolean).join(": ");
    this.row.dataset.state = this.state;
    const toggle = this.part("toggle");
    toggle.hidden = !["uploading", "paused", "failed"].includes(this.state) || !this.upload;
    toggle.textContent = say({ uploading: "pause", paused: "resume", failed: "retry" }[this.state] ?? "pause");
    this.part("remove").hidden = !["waiting", "failed"].includes(this.state) || version !== null;
  }

  remove() {
    entries.splice(entries.indexOf(this), 1);
    this.row.remove();
    total();
  }

  toggle() {
    if (this.state === "uploading") {
      this.upload.abort();
      this.state = "paused";
      this.part("speed").textContent = "";
    } else {
      problem(null);
      this.state = "uploading";
      this.began = null;
      this.upload.start();
    }
    this.show();
  }

  progress(sent, all) {
    const now = performance.now();
    this.began ??= { at: now, sent };
    this.bar.value = all ? (100 * sent) / all : 100;
    const seconds = (now - this.began.at) / 1000;
    if (seconds > 0.3) {
      const speed = (sent - this.began.sent) / seconds;
      const left = speed ? duration((all - sent) / speed) : "–";
      this.part("speed").textContent = `${size(sent)} / ${size(all)} · ${size(speed)}/s · ${left} ${say("left")}`;
    }
  }

  // Resolves when the last byte is on the server; a failure waits for the person to resume.
  run() {
    return new Promise((resolve) => {
      this.state = "uploading";
      this.upload = new tus.Upload(this.file, {
        endpoint: form.dataset.endpoint,
        chunkSize: 16 * 1024 * 1024,
        retryDelays: [0, 500, 1000, 3000, 5000],
        removeFingerprintOnSuccess: true,
        storeFingerprintForResuming: false,
        metadata: { version: version.version, path: this.path },
        headers: { "X-CSRFToken": csrf() },
        onProgress: (sent, all) => this.progress(sent, all),
        onError: (error) => {
          this.state = "failed";
          this.show(reason(error));
        },
        onSuccess: () => {
          this.state = "done";
          this.bar.value = 100;
          this.part("speed").textContent = size(this.file.size);
          this.show();
          resolve();
        },
      });
      this.show();
      this.upload.start();
    });
  }
}

function reason(error) {
  const body = error.originalResponse?.getBody?.();
  if (error.originalResponse?.getStatus?.() === 507) return say("full");
  try {
    return JSON.parse(body).detail || say("connection");
  } catch {
    return say("connection");
  }
}

function total() {
  const bytes = entries.reduce((sum, entry) => sum + entry.file.size, 0);
  document.getElementById("upload-total").textContent = entries.length ? `${entries.length} · ${size(bytes)}` : "";
}

function add(files) {
  if (version) return;
  problem(null);
  for (const { file, path } of files) {
    if (!entries.some((entry) => entry.path === path)) entries.push(new Entry(file, path));
  }
  const model = form.elements.namedItem("model");
  if (!model.value && entries.length) model.value = entries[0].path.replace(/^.*\//, "").replace(/\.[^.]*$/, "").replace(/[^A-Za-z0-9_-]+/g, "-");
  total();
}

async function walk(entry, found, prefix) {
  if (entry.isFile) {
    const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
    found.push({ file, path: prefix + file.name });
    return;
  }
  const reader = entry.createReader();
  for (;;) {
    const children = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!children.length) return;
    for (const child of children) await walk(child, found, `${prefix}${entry.name}/`);
  }
}

for (const name of ["dragenter", "dragover"])
  zone.addEventListener(name, (event) => {
    event.preventDefault();
    zone.classList.add("over");
  });
for (const name of ["dragleave", "drop"]) zone.addEventListener(name, () => zone.classList.remove("over"));
zone.addEventListener("drop", async (event) => {
  event.preventDefault();
  const items = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!items.length) return add([...event.dataTransfer.files].map((file) => ({ file, path: file.name })));
  const found = [];
  for (const item of items) await walk(item, found, "");
  add(found);
});
// A file dropped beside the zone must not replace the page.
for (const name of ["dragover", "drop"]) document.addEventListener(name, (event) => event.preventDefault());
input.addEventListener("change", () => {
  add([...input.files].map((file) => ({ file, path: file.webkitRelativePath || file.name })));
  input.value = "";
});

async function post(url, body) {
  return fetch(url, { method: "POST", body, credentials: "same-origin", headers: { "X-CSRFToken": csrf(), Accept: "application/json, text/html" } });
}

async function begin() {
  const answer = await post(form.action, new FormData(form));
  const document_ = await answer.json();
  if (answer.ok) return document_;
  problem(Object.values(document_.errors).flat().map((error) => error.message ?? error).join(" "));
  return null;
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (running) return;
  if (!entries.length) return problem(say("nofile"));
  problem(null);
  running = true;
  const button = document.getElementById("upload-submit");
  button.disabled = true;
  try {
    version ??= await begin();
    if (!version) {
      button.disabled = false;
      return;
    }
    follow(version.topic);
    const link = document.getElementById("version-link");
    link.href = version.page;
    document.getElementById("next-step").hidden = false;
    const slot = document.getElementById("version-slot");
    slot.innerHTML = await (await fetch(version.progress, { credentials: "same-origin" })).text();
    for (const entry of entries) await entry.run();
    const answer = await post(version.submit, new FormData());
    slot.innerHTML = await answer.text();
    htmx.process(slot);
    if (answer.ok) watch();
  } catch {
    problem(say("connection"));
    button.disabled = false;
  } finally {
    running = false;
  }
});

// The stream shows each check as it ends; this slow poll is for when the stream is down.
function watch() {
  const timer = setInterval(async () => {
    const live = document.querySelector("#version-slot [data-version-state]");
    if (!live || !["uploading", "validating"].includes(live.dataset.versionState)) return clearInterval(timer);
    const answer = await fetch(version.progress, { credentials: "same-origin" }).catch(() => null);
    if (answer?.ok) htmx.swap({ text: await answer.text(), target: live, swap: "outerMorph", sourceElement: live });
  }, 2000);
}
addEventListener("beforeunload", (event) => {
  if (running) event.preventDefault();
});
