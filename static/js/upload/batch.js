// The files of one version: three at a time are on their way.
import { Hasher } from "./hashing.js";

const AT_ONCE = 3;
// The session has ended, or the disk is full: the next files would fail like this one.
const STOPPING = new Set([401, 507]);

export class Batch {
  #hashers = [];
  #active = 0;

  // `rested` is called when nothing is on its way any more.
  constructor(rested) {
    this.rested = rested;
    this.transfers = [];
    this.isRunning = false;
  }

  get length() {
    return this.transfers.length;
  }

  count(...states) {
    return this.transfers.filter((one) => states.includes(one.state)).length;
  }

  get isMoving() {
    return this.transfers.some((one) => one.isActive);
  }

  get isComplete() {
    return this.length > 0 && this.count("done") === this.length;
  }

  get sent() {
    return this.transfers.reduce((sum, one) => sum + (one.state === "done" ? one.size : one.sent), 0);
  }

  get size() {
    return this.transfers.reduce((sum, one) => sum + one.size, 0);
  }

  find(path) {
    return this.transfers.find((one) => one.path === path);
  }

  delete(transfer) {
    this.transfers.splice(this.transfers.indexOf(transfer), 1);
    this.#pump();
  }

  run() {
    this.isRunning = true;
    this.#pump();
  }

  // What waits by now goes too, if the rest is running.
  goOn() {
    if (this.isRunning) this.#pump();
  }

  pause() {
    for (const one of this.transfers) if (one.isActive || one.state === "waiting") one.pause();
  }

  resume() {
    for (const one of this.transfers) if (one.state === "paused" || one.state === "failed") one.resume();
    this.goOn();
  }

  #pump() {
    if (!this.isRunning) return;
    while (this.#active < AT_ONCE) {
      const next = this.transfers.find((one) => one.state === "waiting");
      if (!next) break;
      this.#work(next);
    }
    if (this.#active) return;
    for (const hasher of this.#hashers.splice(0)) hasher.close();
    this.rested();
  }

  async #work(transfer) {
    this.#active += 1;
    transfer.state = "uploading";
    const hasher = this.#hashers.pop() ?? new Hasher();
    try {
      await transfer.run(hasher);
    } finally {
      this.#hashers.push(hasher);
      this.#active -= 1;
      if (transfer.state === "failed" && STOPPING.has(transfer.problem.status)) this.pause();
      this.#pump();
    }
  }
}
