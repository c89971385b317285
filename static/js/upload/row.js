// The line of one file in the list.
import { pace, say, size } from "./words.js";

const VERBS = { uploading: "pause", reading: "pause", retrying: "pause", paused: "resume", failed: "retry" };

export class Row {
  // `acts` has toggle(transfer), remove(transfer) and choose().
  constructor(transfer, acts) {
    this.transfer = transfer;
    this.element = document.getElementById("file-row").content.firstElementChild.cloneNode(true);
    this.bar = this.element.querySelector("progress");
    this.#part("name").textContent = transfer.path;
    this.bar.setAttribute("aria-label", transfer.path);
    this.#button("toggle").addEventListener("click", () => acts.toggle(transfer));
    this.#button("remove").addEventListener("click", () => acts.remove(transfer));
    this.#button("choose").addEventListener("click", () => acts.choose());
    this.#name("remove", "remove");
    this.#name("choose", "choose");
    this.show();
  }

  #part(name) {
    return this.element.querySelector(`[data-${name}]`);
  }

  #button(name) {
    return this.#part(name);
  }

  #name(button, word) {
    const text = say(word);
    if (this.#button(button).textContent === text) return;
    this.#button(button).textContent = text;
    this.#button(button).setAttribute("aria-label", `${text}: ${this.transfer.path}`);
  }

  // The badges of the checks that speak of this file.
  judge(badges) {
    if (this.#part("verdicts").innerHTML !== badges.innerHTML) this.#part("verdicts").innerHTML = badges.innerHTML;
  }

  show({ isOver = false } = {}) {
    const { state, sent, size: all, note, problem, digest, url } = this.transfer;
    this.element.dataset.state = state;
    this.#part("size").textContent = size(all);
    this.#part("state").textContent = [say(state), note].filter(Boolean).join(" · ");
    const percent = state === "done" ? 100 : all ? (100 * sent) / all : 0;
    this.bar.value = percent;
    this.bar.setAttribute("aria-valuetext", `${Math.floor(percent)} %, ${say(state)}`);
    const isMoving = state === "uploading" || state === "retrying";
    this.#part("speed").textContent = isMoving ? pace(sent, all, this.transfer.rate) : state === "paused" ? pace(sent, all, { perSecond: () => 0 }) : "";
    const known = this.#part("digest");
    known.textContent = state === "done" && digest ? `SHA-256 ${digest.slice(0, 12)}…` : "";
    known.title = state === "done" ? digest : "";
    const line = this.#part("problem");
    line.hidden = !problem;
    if (problem) {
      line.querySelector("span").textContent = problem.message;
      line.querySelector("code").textContent = problem.code;
    }
    const verb = VERBS[state];
    this.#button("toggle").hidden = !verb || isOver;
    if (verb) this.#name("toggle", verb);
    this.#button("choose").hidden = state !== "missing" || isOver;
    // What was not sent, because the server had it, is a file of the version by now.
    this.#button("remove").hidden = isOver || (state === "done" && !url);
  }
}
