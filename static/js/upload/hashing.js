// The page's side of hasher.js: one worker, asked for one digest after the other.

const SILENT_MS = 60000;
let count = 0;

// The file changed, went away, or the disk does not answer.
export class Unreadable extends Error {}

export class Hasher {
  constructor() {
    this.worker = null;
    this.names = new WeakMap();
    this.asked = new Map();
  }

  // Hexadecimal SHA-256 of the first `end` bytes; up to `ahead` is hashed meanwhile. `tell` hears how far it is.
  prefix(file, end, { ahead = end, tell = () => {}, signal } = {}) {
    this.worker ??= this.#open();
    if (!this.names.has(file)) this.names.set(file, ++count);
    const id = ++count;
    return new Promise((resolve, reject) => {
      const over = (settle, value) => {
        clearTimeout(this.asked.get(id)?.timer);
        this.asked.delete(id);
        signal?.removeEventListener("abort", stopped);
        settle(value);
      };
      const stopped = () => over(reject, signal.reason);
      const wait = () => setTimeout(() => this.#fail(new Unreadable("no answer")), SILENT_MS);
      const asked = { timer: wait(), resolve: (hex) => over(resolve, hex), reject: (error) => over(reject, error) };
      asked.heard = (at) => {
        clearTimeout(asked.timer);
        asked.timer = wait();
        tell(at);
      };
      this.asked.set(id, asked);
      signal?.addEventListener("abort", stopped);
      this.worker.postMessage({ id, name: this.names.get(file), source: file, end, ahead });
    });
  }

  close() {
    this.worker?.terminate();
    this.worker = null;
  }

  #open() {
    const worker = new Worker(new URL("./hasher.js", import.meta.url), { type: "module" });
    worker.addEventListener("message", ({ data: { id, at, hex, error } }) => {
      const asked = this.asked.get(id);
      if (hex) asked?.resolve(hex);
      else if (error) asked?.reject(new Unreadable(error));
      else asked?.heard(at);
    });
    worker.addEventListener("error", (event) => {
      event.preventDefault();
      this.#fail(new Unreadable(event.message));
    });
    return worker;
  }

  #fail(error) {
    this.close();
    for (const asked of [...this.asked.values()]) asked.reject(error);
  }
}
