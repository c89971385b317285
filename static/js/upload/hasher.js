// In a worker: SHA-256 of the first bytes of a file, read in pieces. What was hashed last is remembered, so that the
// digests up to the end of one chunk after the other cost one pass over the file.
import { sha256 } from "../../vendor/noble/sha2.js";

const PIECE_BYTES = 4 << 20;
const MARKS = 3;
let file = null;
let known = 0;
let marks = [];
let turn = Promise.resolve();

async function marked(end, tell) {
  const before = marks.filter((mark) => mark.offset <= end).sort((one, other) => other.offset - one.offset)[0];
  const mark = before ?? { offset: 0, hash: sha256.create() };
  if (mark.offset === end && before) return mark;
  const hash = mark.hash.clone();
  for (let at = mark.offset; at < end; ) {
    const stop = Math.min(end, at + PIECE_BYTES);
    hash.update(new Uint8Array(await file.slice(at, stop).arrayBuffer()));
    at = stop;
    tell(at);
  }
  const found = { offset: end, hash };
  marks = [...marks, found].slice(-MARKS);
  return found;
}

async function answer({ id, name, source, end, ahead }) {
  try {
    if (name !== known) [file, known, marks] = [source, name, []];
    const found = await marked(end, (at) => postMessage({ id, at }));
    const digest = found.hash.clone().digest();
    postMessage({ id, hex: Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("") });
    // While this chunk is sent, the next one is hashed.
    if (ahead > end) await marked(ahead, () => {});
  } catch (error) {
    postMessage({ id, error: `${error?.name}: ${error?.message}` });
  }
}

addEventListener("message", ({ data }) => {
  turn = turn.then(() => answer(data));
});
