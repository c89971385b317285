// The call beside a form says what is typed: the example in its JSON body gives way, field by field, to the form's values.
// A form names the element of its call in data-equivalent. Where the upload page repeats a name instead of JSON,
// data-example is the word that gives way to the field named in data-example-of.

const BODY = /(-d )('(?:[^']|'\\'')*'|\S+)/;

const unquoted = (word) => (word.startsWith("'") ? word.slice(1, -1).replaceAll("'\\''", "'") : word);
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

// The key of the body that a field stands for: its own name, its plural, or a longer name that ends with it.
function keyOf(body, name) {
  if (name in body) return name;
  if (`${name}s` in body) return `${name}s`;
  return Object.keys(body).find((key) => key.endsWith(`_${name}`));
}

function valueOf(field, example) {
  if (field.type === "checkbox") return field.checked;
  // A list of names may send ids: the example tells which of the two the call takes.
  const named = field instanceof HTMLSelectElement && [...field.options].some((option) => option.text === example);
  const text = (named ? field.selectedOptions[0]?.text : field.value)?.trim() ?? "";
  if (Array.isArray(example)) {
    const parts = text.split(/[\s,]+/).filter(Boolean);
    return typeof example[0] === "number" ? parts.map(Number).filter(Number.isFinite) : parts;
  }
  if (typeof example === "number") return Number(text) || example;
  return example === null ? text || null : text || example;
}

/* Return the JSON body as the form has it; empty fields keep the example, and secrets are never shown. */
export function filled(example, fields) {
  const body = { ...example };
  for (const field of fields) {
    const key = field.name && field.type !== "password" && field.type !== "hidden" ? keyOf(example, field.name) : undefined;
    if (key === undefined || (field.type === "radio" && !field.checked)) continue;
    body[key] = valueOf(field, example[key]);
    if (Array.isArray(body[key]) && !body[key].length) body[key] = example[key];
  }
  return body;
}

export function startEquivalents(root = document) {
  for (const form of root.querySelectorAll("form[data-equivalent]")) {
    const code = document.getElementById(form.dataset.equivalent);
    const shown = code?.textContent.match(BODY);
    if (!shown) continue;
    const [original, example] = [code.textContent, JSON.parse(unquoted(shown[2]))];
    const show = () => {
      const body = JSON.stringify(filled(example, form.elements));
      code.textContent = original.replace(BODY, (_whole, option) => option + quoted(body));
    };
    form.addEventListener("input", show);
    form.addEventListener("change", show);
    show();
  }
  for (const code of root.querySelectorAll("[data-example-of]")) {
    const [field, original] = [document.getElementById(code.dataset.exampleOf), code.textContent];
    const show = () => {
      const name = field.value.trim();
      if (/^[\w-]*$/.test(name)) code.textContent = original.replaceAll(code.dataset.example, name || code.dataset.example);
    };
    field?.addEventListener("input", show);
    show();
  }
}
