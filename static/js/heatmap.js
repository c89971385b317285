// The heat map by keyboard: one cell takes part in the order of Tab, the arrow keys, Home, End and Page keys move in it.
const grid = () => document.querySelector("table[data-heat]");
const cellOf = (td) => td?.querySelector("a[id], span[id]");
const rowsOf = (table) => [...table.tBodies[0].rows].map((row) => [...row.cells].map(cellOf));

// After a morph the server's markup stands there again, in which every link is a stop of its own.
function rove(chosen) {
  const table = grid();
  if (!table) return;
  const cells = rowsOf(table).flat();
  const current = chosen ?? cells.find((cell) => cell === document.activeElement) ?? cells[0];
  for (const cell of cells) cell.tabIndex = cell === current ? 0 : -1;
}

function onKey(event) {
  const table = grid();
  if (!table?.contains(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
  const rows = rowsOf(table);
  const y = rows.findIndex((row) => row.includes(event.target));
  if (y < 0) return;
  const x = rows[y].indexOf(event.target);
  const lastRow = rows.length - 1;
  const lastColumn = rows[y].length - 1;
  const moves = {
    ArrowLeft: [y, x - 1], ArrowRight: [y, x + 1], ArrowUp: [y - 1, x], ArrowDown: [y + 1, x],
    Home: [y, 0], End: [y, lastColumn], PageUp: [y - 10, x], PageDown: [y + 10, x],
  };
  const move = moves[event.key];
  if (!move) return;
  event.preventDefault();
  const next = rows[Math.min(Math.max(move[0], 0), lastRow)][Math.min(Math.max(move[1], 0), lastColumn)];
  rove(next);
  next.focus();
}

document.addEventListener("keydown", onKey);
document.addEventListener("focusin", (event) => {
  if (grid()?.contains(event.target) && event.target.id) rove(event.target);
});
document.addEventListener("flotilla:fragment", () => rove());
rove();
