// The traffic sliders: a slider and its number say the same; with two versions, one moves the other.
const forms = () => document.querySelectorAll("form[data-traffic]");

function put(form, name, value) {
  const number = form.elements.namedItem(name);
  const slider = form.querySelector(`[data-slider="${name}"]`);
  number.value = value;
  if (slider) slider.value = value;
}
function clamp(value) {
  return Math.min(100, Math.max(0, Math.round(Number(value) || 0)));
}
function set(form, name, value) {
  const share = clamp(value);
  put(form, name, share);
  if ("pair" in form.dataset) {
    const other = [...form.querySelectorAll("[data-weight]")].find((input) => input.name !== name);
    if (other) put(form, other.name, 100 - share);
  }
  const preview = document.getElementById("traffic-preview");
  if (preview) preview.replaceChildren();
  // What a person is setting is not overwritten by a live update.
  form.setAttribute("hx-morph-skip", "");
}

document.addEventListener("input", (event) => {
  const form = event.target.closest("form[data-traffic]");
  if (!form) return;
  const name = event.target.dataset.slider ?? (event.target.matches("[data-weight]") ? event.target.name : null);
  if (name) set(form, name, event.target.value);
});
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-step]");
  const form = button?.closest("form[data-traffic]");
  if (!form) return;
  const inputs = [...form.querySelectorAll("[data-weight]")];
  set(form, inputs[inputs.length - 1].name, button.dataset.step);
});
for (const form of forms()) form.addEventListener("submit", () => form.removeAttribute("hx-morph-skip"));
