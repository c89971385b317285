// What was interrupted and can go on: a notice for each, above the form.
import { forget, heldElsewhere, records } from "./kept.js";
import { call } from "./server.js";
import { say, size } from "./words.js";

const place = () => document.getElementById("upload-unfinished");

// Show them; return {record, standing} of those that no other tab has. `goOn(record)`, `discard(record, facts)`.
export async function showUnfinished(project, { goOn, discard }) {
  const elsewhere = await heldElsewhere();
  const free = [];
  for (const record of records(project)) {
    const answer = await call(record.standing).catch(() => null);
    // Somebody else's, or the server is away: it may come back.
    if (!answer?.ok || !answer.headers.get("Content-Type")?.includes("json")) continue;
    const standing = await answer.json();
    if (standing.state !== "uploading") {
      forget(record.version);
      continue;
    }
    const isOpen = elsewhere.has(record.version);
    place().append(notice(record, standing, isOpen, { goOn, discard }));
    if (!isOpen) free.push({ record, standing });
  }
  return free;
}

function notice(record, standing, isOpen, { goOn, discard }) {
  const all = record.files.length;
  const done = record.files.filter(({ path }) => standing.files[path]?.is_here).length;
  const sent = Object.values(standing.files).reduce((sum, { offset }) => sum + offset, 0);
  const facts = { model: record.model, done, all, rest: all - done, waiting: all - done, size: size(sent) };
  const box = document.getElementById("unfinished").content.firstElementChild.cloneNode(true);
  box.querySelector("p").textContent = say(isOpen ? "otherTab" : facts.rest ? "unfinished" : "unchecked", facts);
  box.querySelector("[data-buttons]").hidden = isOpen;
  box.querySelector("[data-go-on]").textContent = say(facts.rest ? "goOn" : "goOnChecking", facts);
  box.querySelector("[data-go-on]").addEventListener("click", () => goOn(record));
  box.querySelector("[data-discard]").addEventListener("click", () => discard(record, facts));
  return box;
}

export function hideUnfinished() {
  place().replaceChildren();
}
