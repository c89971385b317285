// Plots of a measurement on uPlot: a line for each instance count over the batch sizes, dashed for an earlier version.
// The table below the plots has the same figures.
const COLOURS = ["#4f6bed", "#d9730d", "#0f9d8a", "#b547b5", "#7a8599"];
let plots = [];

const round = (value, digits) => Number(value.toFixed(digits)).toString();
function show(value, unit) {
  if (value == null) return "–";
  if (unit === "s") return value < 0.001 ? `${round(value * 1e6, 0)} µs` : value < 1 ? `${round(value * 1e3, 2)} ms` : `${round(value, 2)} s`;
  return `${value >= 10000 ? `${round(value / 1000, 1)}k` : round(value, value < 10 ? 2 : 0)}/s`;
}

function draw(element, batches, lines) {
  const { plot: metric, unit } = element.dataset;
  const style = getComputedStyle(document.documentElement);
  const ink = style.getPropertyValue("--muted").trim();
  const grid = style.getPropertyValue("--color-base-300").trim();
  const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 }, font: "11px system-ui, sans-serif" };
  // Batch sizes stand side by side at equal distance, whatever their size.
  const places = batches.map((_size, place) => place);
  let now = -1;
  const coloured = lines.map((line) => ({ ...line, colour: COLOURS[(line.before ? now : ++now) % COLOURS.length] }));
  element.replaceChildren();
  plots.push(
    new uPlot(
      {
        width: element.clientWidth,
        height: 180,
        legend: { show: false },
        cursor: { drag: { x: false, y: false } },
        scales: { x: { time: false, range: [-0.25, batches.length - 0.75] }, y: { range: (_plot, _low, high) => [0, high > 0 ? high * 1.1 : 1] } },
        axes: [
          { ...axis, splits: () => places, values: (_plot, ticks) => ticks.map((tick) => batches[tick] ?? "") },
          { ...axis, size: 72, values: (_plot, ticks) => ticks.map((tick) => show(tick, unit)) },
        ],
        series: [{}, ...coloured.map((line) => ({ label: line.label, stroke: line.colour, width: 1.75, dash: line.before ? [5, 4] : [], spanGaps: true, points: { show: true, size: 6 } }))],
      },
      [places, ...lines.map((line) => line[metric])],
      element,
    ),
  );
  element.parentElement.querySelector(".legend").replaceChildren(
    ...coloured.map((line) => {
      const entry = document.createElement("span");
      const swatch = document.createElement("span");
      swatch.className = "swatch";
      swatch.style.setProperty("--series", line.colour);
      entry.append(swatch, line.label);
      return entry;
    }),
  );
}

function start() {
  for (const plot of plots) plot.destroy();
  plots = [];
  const data = document.getElementById("measurement-plot");
  if (!data) return;
  const { batches, lines } = JSON.parse(data.textContent);
  for (const element of document.querySelectorAll("[data-plot]")) draw(element, batches, lines);
}

let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== width) start();
  width = innerWidth;
});
document.addEventListener("flotilla:theme", start);
document.addEventListener("flotilla:fragment", (event) => {
  if (event.detail.selector === "#measurement") start();
});
if (window.uPlot) start();
else addEventListener("DOMContentLoaded", start);
