// Tabs inside a page (WAI-ARIA pattern). The chosen tab survives when the panes are swapped for new ones.
const chosen = new Map();

function choose(tab, focus) {
  const box = tab.closest("[data-tabs]");
  for (const other of box.querySelectorAll('[role="tab"]')) {
    const selected = other === tab;
    other.setAttribute("aria-selected", String(selected));
    other.tabIndex = selected ? 0 : -1;
    document.getElementById(other.getAttribute("aria-controls")).hidden = !selected;
  }
  chosen.set(box.dataset.tabs, tab.id);
  if (focus) tab.focus();
}

document.addEventListener("click", (event) => {
  const tab = event.target.closest('[role="tab"]');
  if (tab?.closest("[data-tabs]")) choose(tab, false);
});
document.addEventListener("keydown", (event) => {
  const tab = event.target.closest?.('[role="tab"]');
  if (!tab || !["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) return;
  event.preventDefault();
  const tabs = [...tab.closest('[role="tablist"]').querySelectorAll('[role="tab"]')];
  const at = tabs.indexOf(tab);
  const next = { ArrowLeft: (at - 1 + tabs.length) % tabs.length, ArrowRight: (at + 1) % tabs.length, Home: 0, End: tabs.length - 1 }[event.key];
  choose(tabs[next], true);
});
document.addEventListener("htmx:after:swap", () => {
  for (const [, id] of chosen) {
    const tab = document.getElementById(id);
    if (tab) choose(tab, false);
  }
});
