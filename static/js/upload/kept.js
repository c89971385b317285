// Uploads that were begun in this browser and are not over. The files themselves cannot be kept: whoever goes on chooses
// them again, and path, size and time tell that they are the same. The server's digests decide.

const PREFIX = "flotilla-upload:";
const OLDEST_MS = 30 * 24 * 3600 * 1000;

export function keep(record) {
  try {
    localStorage.setItem(PREFIX + record.version, JSON.stringify(record));
  } catch {
    // Full or forbidden: the upload works, only a reload forgets it.
  }
}

export function forget(version) {
  try {
    localStorage.removeItem(PREFIX + version);
  } catch {
    // Forbidden: there is nothing to forget.
  }
}

export function records(project) {
  const found = [];
  try {
    for (const key of Object.keys(localStorage).filter((one) => one.startsWith(PREFIX))) {
      const record = JSON.parse(localStorage.getItem(key));
      if (Date.now() - record.at > OLDEST_MS) localStorage.removeItem(key);
      else if (record.project === project) found.push(record);
    }
  } catch {
    return [];
  }
  return found.sort((one, other) => other.at - one.at);
}

// True when this tab has the upload now, and keeps it until it closes. Where there are no locks (http on another name
// than localhost) the server's own lock on each file has to do.
export function hold(version) {
  if (!navigator.locks) return Promise.resolve(true);
  return new Promise((resolve) => {
    navigator.locks.request(PREFIX + version, { ifAvailable: true }, (lock) => {
      resolve(Boolean(lock));
      return lock ? new Promise(() => {}) : null;
    });
  });
}

export async function heldElsewhere() {
  if (!navigator.locks) return new Set();
  const { held } = await navigator.locks.query();
  return new Set(held.filter(({ name }) => name.startsWith(PREFIX)).map(({ name }) => name.slice(PREFIX.length)));
}
