// What the page says: sentences come from the form, so that they are translated where all others are.

const form = document.getElementById("upload-form");

export function say(name, values = {}) {
  const text = form.dataset[`text${name[0].toUpperCase()}${name.slice(1)}`] ?? "";
  return text.replace(/\{(\w+)\}/g, (_whole, key) => values[key] ?? "");
}

export function size(bytes) {
  const power = bytes ? Math.min(4, Math.floor(Math.log2(bytes) / 10)) : 0;
  return `${(bytes / 2 ** (10 * power)).toFixed(power ? 1 : 0)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
}

export function duration(seconds) {
  if (seconds < 90) return `${Math.ceil(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

// Bytes a second over the last seconds.
export class Rate {
  #marks = [];

  add(bytes, now = performance.now()) {
    const last = this.#marks.at(-1);
    if (last && now - last.at < 250) last.bytes += bytes;
    else this.#marks.push({ at: now, bytes });
  }

  perSecond(now = performance.now()) {
    while (this.#marks.length && now - this.#marks[0].at > 10000) this.#marks.shift();
    const seconds = this.#marks.length ? (now - this.#marks[0].at) / 1000 : 0;
    if (seconds < 0.5) return 0;
    return this.#marks.reduce((sum, mark) => sum + mark.bytes, 0) / seconds;
  }
}

// "1.2 MiB / 3.0 MiB · 400.0 KiB/s · 5 s left"
export function pace(sent, all, rate) {
  const speed = rate.perSecond();
  const parts = [`${size(sent)} / ${size(all)}`];
  if (speed) parts.push(`${size(speed)}/s`, `${duration((all - sent) / speed)} ${say("left")}`);
  return parts.join(" · ");
}

let spoken = 0;
let timer = 0;

// For screen readers: at most one sentence in five seconds, and the last one always.
export function announce(text) {
  clearTimeout(timer);
  const wait = Math.max(0, spoken + 5000 - performance.now());
  timer = setTimeout(() => {
    spoken = performance.now();
    document.getElementById("upload-spoken").textContent = text;
  }, wait);
}
