// One file on its way: tus-js-client speaks the protocol, one `tus.Upload` for each attempt; pauses, back-off and what
// the server knows already are here. A chunk carries the digest of everything up to its end, so it counts whole or not
// at all; it is sized to take a few seconds, or a slow line that is cut would never get one through.
import { call, csrf, Problem, problemFrom, problemIn } from "./server.js";
import { Rate, say } from "./words.js";

const SMALLEST_CHUNK = 1 << 20;
const LARGEST_CHUNK = 16 << 20;
const CHUNK_SECONDS = 8;
const SILENT_MS = 60000;
const MOST_FAILURES = 12;
const MOST_DAMAGED = 3;
const LONGEST_WAIT = 30;
const TUS = { "Tus-Resumable": "1.0.0" };

function rest(seconds, signal) {
  return new Promise((resolve, reject) => {
    const over = () => {
      clearTimeout(timer);
      removeEventListener("online", over);
      signal.removeEventListener("abort", over);
      if (signal.aborted) reject(signal.reason);
      else resolve();
    };
    const timer = setTimeout(over, seconds * 1000);
    addEventListener("online", over);
    signal.addEventListener("abort", over);
  });
}

export class Transfer {
  // `target` names the version and what the server knows of it; it is one object for all files of an upload.
  constructor({ path, size, modified, file = null }, target, changed) {
    Object.assign(this, { path, size, modified, file, target, changed });
    this.state = file ? "waiting" : "missing";
    this.sent = this.accepted = 0;
    this.url = "";
    this.digest = "";
    this.note = "";
    this.problem = null;
    this.rate = new Rate();
    this.chunk = SMALLEST_CHUNK * 4;
    this.stop = null;
    this.isFresh = false;
  }

  get isActive() {
    return ["reading", "uploading", "retrying"].includes(this.state);
  }

  move(state, problem = null) {
    this.state = state;
    this.problem = problem;
    this.changed(this);
  }

  // What the server has of it, after a reload.
  found({ url, offset, is_here: isHere }) {
    this.url = url;
    this.sent = this.accepted = offset;
    if (isHere) this.move("done");
  }

  // The same file chosen again goes on; another one begins anew.
  choose(file) {
    const isSame = file.size === this.size && file.lastModified === this.modified;
    this.file = file;
    this.size = file.size;
    this.modified = file.lastModified;
    if (!isSame) {
      this.isFresh = Boolean(this.url);
      this.note = say("changed");
    }
    this.move("waiting");
  }

  pause() {
    this.stop?.abort();
    this.move("paused");
  }

  resume() {
    if (this.problem?.fresh) this.isFresh = true;
    this.move("waiting");
  }

  // End it on the server too; rejects when the server does not let go of it.
  async remove() {
    this.stop?.abort();
    await this.#end(new AbortController().signal);
  }

  async #end(signal) {
    if (!this.url) return;
    for (let tries = 1; ; tries += 1) {
      const answer = await call(this.url, { method: "DELETE", headers: TUS });
      if (answer.ok || answer.status === 404 || answer.status === 410) break;
      // The request that was cut may still hold the file for a moment.
      if (answer.status !== 423 || tries === 5) throw await problemIn(answer);
      await rest(tries, signal);
    }
    this.url = "";
    this.sent = this.accepted = 0;
  }

  // Ends when it is done, failed, paused or removed.
  async run(hasher) {
    this.stop = new AbortController();
    const { signal } = this.stop;
    let [failures, damaged] = [0, 0];
    while (!signal.aborted) {
      const before = this.accepted;
      try {
        await this.#attempt(hasher, signal);
        return;
      } catch (error) {
        if (signal.aborted) return;
        const problem = problemFrom(error);
        failures = this.accepted > before ? 1 : failures + 1;
        damaged = problem.status === 460 ? damaged + 1 : 0;
        if (failures <= MOST_FAILURES && (await this.#lostSight(problem, signal))) {
          if (this.state === "done") return;
          continue;
        }
        if (damaged === MOST_DAMAGED) problem.fresh = true;
        if (!problem.again || problem.fresh || failures > MOST_FAILURES) {
          this.move("failed", problem);
          return;
        }
        this.chunk = Math.max(SMALLEST_CHUNK, this.chunk / 2);
        const wait = problem.wait || Math.min(LONGEST_WAIT, 2 ** (failures - 1));
        this.note = say("again", { seconds: Math.ceil(wait) });
        this.move("retrying", problem);
        await rest(wait, signal).catch(() => {});
        this.note = "";
      }
    }
  }

  // The answer to a creation may be lost, or the address of an upload be over: the server says what there is.
  async #lostSight(problem, signal) {
    if (this.url && (problem.status === 404 || problem.status === 410)) {
      this.url = "";
      this.sent = this.accepted = 0;
      return true;
    }
    if (this.url || problem.status !== 409) return false;
    const answer = await call(this.target.standing, { signal }).catch(() => null);
    if (!answer?.ok) return false;
    const known = (await answer.json()).files[this.path];
    problem.again = false;
    if (!known?.url && !(known?.is_here && known.size === this.size)) return false;
    this.isFresh = known.size !== this.size;
    this.found({ ...known, is_here: known.is_here && !this.isFresh });
    return true;
  }

  async #attempt(hasher, signal) {
    if (this.isFresh) {
      await this.#end(signal);
      this.isFresh = false;
    }
    if (!this.url && this.target.known.has(this.size) && (await this.#attach(hasher, signal))) return;
    this.move("uploading");
    await this.#upload(hasher, signal);
    this.move("done");
  }

  // Content that the server has already is not sent.
  async #attach(hasher, signal) {
    this.move("reading");
    const sha256 = await hasher.prefix(this.file, this.size, { signal, tell: (at) => this.#read(at, this.size) });
    const body = new URLSearchParams({ path: this.path, sha256 });
    const answer = await call(this.target.attach, { method: "POST", body, signal });
    if (!answer.ok) throw await problemIn(answer);
    if (!(await answer.json()).is_here) return false;
    this.sent = this.size;
    this.digest = sha256;
    this.note = say("known");
    this.move("done");
    return true;
  }

  #read(at, end) {
    this.note = say("read", { percent: end ? Math.floor((100 * at) / end) : 100 });
    this.changed(this);
  }

  #upload(hasher, signal) {
    return new Promise((resolve, reject) => {
      let watchdog = 0;
      const over = (settle, value) => {
        clearTimeout(watchdog);
        signal.removeEventListener("abort", stopped);
        settle(value);
      };
      const stopped = () => {
        upload.abort();
        over(reject, signal.reason);
      };
      const heard = () => {
        clearTimeout(watchdog);
        watchdog = setTimeout(() => {
          upload.abort();
          over(reject, new Problem(say("connection"), { code: "idle", again: true }));
        }, SILENT_MS);
      };
      let began = { at: performance.now(), offset: 0 };
      const upload = new tus.Upload(this.file, {
        ...(this.url ? { uploadUrl: this.url } : { endpoint: this.target.endpoint }),
        chunkSize: this.chunk,
        retryDelays: null,
        storeFingerprintForResuming: false,
        metadata: { version: this.target.version, path: this.path },
        onUploadUrlAvailable: () => {
          this.url = upload.url;
          this.changed(this);
        },
        onBeforeRequest: async (request) => {
          heard();
          request.setHeader("X-CSRFToken", csrf());
          if (request.getMethod() !== "PATCH") return;
          const offset = Number(request.getHeader("Upload-Offset"));
          const end = Math.min(this.size, offset + this.chunk);
          const tell = (at) => {
            heard();
            if (end - at > LARGEST_CHUNK) this.#read(at, end);
          };
          const ahead = Math.min(this.size, end + this.chunk);
          this.digest = await hasher.prefix(this.file, end, { ahead, tell, signal });
          this.note = "";
          const bytes = this.digest.match(/../g).map((pair) => String.fromCharCode(parseInt(pair, 16)));
          request.setHeader("Upload-Checksum", `sha256-prefix ${btoa(bytes.join(""))}`);
          began = { at: performance.now(), offset };
          heard();
        },
        onProgress: (sent) => {
          heard();
          if (sent > this.sent) {
            this.rate.add(sent - this.sent);
            this.target.rate.add(sent - this.sent);
          }
          this.sent = sent;
          this.changed(this);
        },
        onChunkComplete: (_size, accepted) => {
          this.accepted = accepted;
          const speed = (accepted - began.offset) / ((performance.now() - began.at) / 1000);
          const fitting = 2 ** Math.floor(Math.log2(Math.max(1, speed * CHUNK_SECONDS)));
          this.chunk = Math.min(LARGEST_CHUNK, Math.max(SMALLEST_CHUNK, Math.min(fitting, this.chunk * 2)));
          upload.options.chunkSize = this.chunk;
        },
        onError: (error) => over(reject, error),
        onSuccess: () => over(resolve),
      });
      if (signal.aborted) return over(reject, signal.reason);
      signal.addEventListener("abort", stopped);
      heard();
      upload.start();
    });
  }
}
