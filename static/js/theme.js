// Loaded before the first paint: applies the stored theme, so that no page flashes in the wrong one.
(() => {
  const stored = localStorage.getItem("flotilla-theme");
  if (stored === "light" || stored === "dark") document.documentElement.dataset.theme = stored;
})();
