// Files out of a drop or a picker: {files: [{file, path inside the version}], name: what the model might be called}.

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

// One folder stands for what is in it, as with `flotilla push FOLDER`; the server takes names in normal form C only.
function tidy(found) {
  const heads = new Set(found.map(({ path }) => path.split("/", 1)[0]));
  const whole = heads.size === 1 && found.every(({ path }) => path.includes("/"));
  const files = found.map(({ file, path }) => ({ file, path: (whole ? path.slice(path.indexOf("/") + 1) : path).normalize("NFC") }));
  files.sort((one, other) => one.path.localeCompare(other.path, undefined, { numeric: true }));
  const name = whole ? [...heads][0] : files[0]?.path.replace(/^.*\//, "").replace(/\.[^.]*$/, "");
  return { files, name: (name ?? "").replace(/[^A-Za-z0-9_-]+/g, "-") };
}

export async function dropped(transfer) {
  const items = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!items.length) return tidy([...transfer.files].map((file) => ({ file, path: file.name })));
  const found = [];
  for (const item of items) await walk(item, found, "");
  return tidy(found);
}

export function picked(input) {
  const found = [...input.files].map((file) => ({ file, path: file.webkitRelativePath || file.name }));
  input.value = "";
  return tidy(found);
}
