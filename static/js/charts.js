// Charts on uPlot: one colour a version (or node), dashes for percentiles, deploy markers, one cursor and one zoom for
// all charts of the page, a legend that follows the cursor, and the same numbers as a table.
const COLOURS = ["#4f6bed", "#d9730d", "#0f9d8a", "#b547b5", "#7a8599"];
const DASHES = { p50: [], p95: [7, 4], p99: [2, 3] };
const NAMES = { request_rate: "", failure_rate: "failures", latency_p50: "p50", latency_p95: "p95", latency_p99: "p99", queue_p50: "p50", queue_p99: "p99" };
const TICK = 10000;
// Memory is ruled at whole KiB, MiB and GiB.
const BINARY = Array.from({ length: 50 }, (_, power) => 2 ** power);

const round = (value, digits) => Number(value.toFixed(digits)).toString();
function show(value, unit) {
  if (value == null) return "–";
  if (unit === "s") return value < 0.001 ? `${round(value * 1e6, 0)} µs` : value < 1 ? `${round(value * 1e3, 2)} ms` : `${round(value, 2)} s`;
  if (unit === "%") return `${round(value * 100, 1)} %`;
  if (unit === "B") {
    const power = Math.min(4, Math.max(0, Math.floor(Math.log2(Math.max(1, Math.abs(value))) / 10)));
    return `${round(value / 2 ** (10 * power), 1)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
  }
  return `${round(value, value < 10 ? 2 : 1)}${unit === "1/s" ? "/s" : ""}`;
}

function clock(tick, step) {
  const moment = new Date(tick * 1000);
  if (step >= 86400) return moment.toLocaleDateString(undefined, { month: "short", day: "numeric" });
  const parts = { hour: "2-digit", minute: "2-digit", hour12: false };
  if (step < 60) parts.second = "2-digit";
  return moment.toLocaleTimeString(undefined, parts);
}

class Chart {
  constructor(board, element) {
    this.board = board;
    this.element = element;
    this.unit = element.dataset.unit;
    const [metrics, by] = element.dataset.chart.split("@");
    this.metrics = metrics.split(",");
    this.by = by ?? "version";
    this.plot = element.querySelector(".plot");
    this.empty = element.querySelector(".nodata");
    this.legend = element.querySelector(".legend");
    this.table = element.querySelector("table");
    this.lines = [];
  }

  // Several series over their own times, on the union of the times.
  take(found) {
    const series = this.metrics.map((metric) => found.get(`${metric}@${this.by}`)).filter(Boolean);
    const times = [...new Set(series.flatMap((one) => one.times))].sort((a, b) => a - b);
    const at = new Map(times.map((time, index) => [time, index]));
    this.lines = [];
    for (const one of series) {
      for (const line of one.lines) {
        const values = new Array(times.length).fill(null);
        one.times.forEach((time, index) => (values[at.get(time)] = line.values[index]));
        if (one.metric === "failure_rate" && values.every((value) => !value)) continue;
        if (values.every((value) => value == null)) continue;
        const name = NAMES[one.metric] ?? "";
        const label = this.by === "version" ? (line.label === "total" ? "" : `v${line.label.replace(/^v/, "")}`) : line.label;
        this.lines.push({ label: [label, name].filter(Boolean).join(" ") || line.label, key: line.label, failure: one.metric === "failure_rate", dash: DASHES[name] ?? [], values });
      }
    }
    this.times = times;
    this.draw();
  }

  draw() {
    this.empty.hidden = this.lines.length > 0;
    if ("optional" in this.element.dataset) this.element.hidden = !this.lines.length;
    if (!this.lines.length) {
      this.empty.textContent = this.board.text("nodata");
      this.chart?.destroy();
      this.chart = null;
      this.legend.textContent = "";
      this.table.textContent = "";
      return;
    }
    const data = [this.times, ...this.lines.map((line) => line.values)];
    const shape = this.lines.map((line) => line.label).join("|");
    if (this.chart && this.shape === shape) this.chart.setData(data, false);
    else {
      this.chart?.destroy();
      this.shape = shape;
      this.chart = new uPlot(this.options(), data, this.plot);
    }
    const { from, to } = this.board.window();
    this.chart.setScale("x", { min: from, max: to });
    this.showLegend(null);
    this.fillTable();
  }

  colour(line) {
    return line.failure ? getComputedStyle(document.documentElement).getPropertyValue("--color-error").trim() : COLOURS[this.board.order(line.key) % COLOURS.length];
  }

  options() {
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--muted").trim();
    const grid = style.getPropertyValue("--color-base-300").trim();
    const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 }, font: "11px system-ui, sans-serif" };
    return {
      width: this.plot.clientWidth,
      height: 180,
      legend: { show: false },
      cursor: { sync: { key: "flotilla", setSeries: false }, drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
      scales: { x: { time: true }, y: { range: (_plot, _low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      axes: [{ ...axis, values: (_plot, ticks, _axis, _space, step) => ticks.map((tick) => clock(tick, step)) }, { ...axis, size: 72, ...(this.unit === "B" ? { incrs: BINARY } : {}), values: (_plot, ticks) => ticks.map((tick) => show(tick, this.unit)) }],
      series: [{}, ...this.lines.map((line) => ({ label: line.label, stroke: this.colour(line), width: 1.75, dash: line.dash, spanGaps: false, points: { show: line.values.filter((value) => value != null).length < 3 } }))],
      hooks: {
        draw: [(plot) => this.drawMarkers(plot)],
        setCursor: [(plot) => this.showLegend(plot.cursor.idx)],
        setSelect: [(plot) => this.board.zoom(plot)],
        ready: [(plot) => plot.over.addEventListener("dblclick", () => this.board.zoom(null))],
      },
    };
  }

  drawMarkers(plot) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--color-primary").trim();
    ctx.setLineDash([4, 3]);
    for (const marker of this.board.markers) {
      if (marker.at < plot.scales.x.min || marker.at > plot.scales.x.max) continue;
      const x = plot.valToPos(marker.at, "x", true);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  }

  showLegend(index) {
    const last = (values) => values.findLast((value) => value != null);
    this.legend.replaceChildren(
      ...this.lines.map((line) => {
        const entry = document.createElement("span");
        const swatch = document.createElement("span");
        swatch.className = "swatch";
        swatch.style.setProperty("--series", this.colour(line));
        entry.append(swatch, `${line.label} ${show(index == null ? last(line.values) : line.values[index], this.unit)}`);
        return entry;
      }),
    );
    const near = index == null ? null : this.board.markers.find((marker) => Math.abs(marker.at - this.times[index]) < 15);
    if (near) {
      const note = document.createElement("span");
      note.textContent = `▎${near.label}`;
      this.legend.append(note);
    }
  }

  fillTable() {
    const head = document.createElement("tr");
    for (const label of [this.board.text("time"), ...this.lines.map((line) => line.label)]) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = label;
      head.append(cell);
    }
    const rows = this.times.slice(-30).map((time, offset) => {
      const index = Math.max(0, this.times.length - 30) + offset;
      const row = document.createElement("tr");
      const name = document.createElement("th");
      name.scope = "row";
      name.textContent = new Date(time * 1000).toLocaleTimeString();
      row.append(name);
      for (const line of this.lines) {
        const cell = document.createElement("td");
        cell.className = "r";
        cell.textContent = show(line.values[index], this.unit);
        row.append(cell);
      }
      return row;
    });
    const top = document.createElement("thead");
    top.append(head);
    const body = document.createElement("tbody");
    body.append(...rows.reverse());
    this.table.replaceChildren(top, body);
  }
}

class Board {
  constructor(element) {
    this.element = element;
    this.span = Number(element.dataset.span);
    this.zoomed = null;
    this.keys = [];
    this.busy = false;
    const markers = document.getElementById("chart-markers");
    this.markers = markers ? JSON.parse(markers.textContent) : [];
    this.charts = [...element.querySelectorAll("[data-chart]")].map((one) => new Chart(this, one));
    new ResizeObserver(() => this.charts.forEach((one) => one.chart?.setSize({ width: one.plot.clientWidth, height: 180 }))).observe(element);
    document.addEventListener("flotilla:theme", () => this.redraw());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
    document.addEventListener("flotilla:notice", (event) => event.detail.topic === "metrics" && this.load());
    setInterval(() => document.visibilityState === "visible" && this.load(), TICK);
    this.load();
  }

  text(name) {
    return this.element.dataset[`text${name[0].toUpperCase()}${name.slice(1)}`] ?? "";
  }

  order(key) {
    // A version has the same colour here, in the traffic bar and on the next page.
    const version = /^v?(\d+)$/.exec(key);
    if (version) return Math.max(0, Number(version[1]) - 1);
    if (!this.keys.includes(key)) this.keys = [...this.keys, key].sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
    return this.keys.indexOf(key);
  }

  window() {
    if (this.zoomed) return this.zoomed;
    const to = Date.now() / 1000;
    return { from: to - this.span, to };
  }

  zoom(plot) {
    if (!plot) this.zoomed = null;
    else {
      const { left, width } = plot.select;
      if (width < 4) return;
      this.zoomed = { from: plot.posToVal(left, "x"), to: plot.posToVal(left + width, "x") };
      plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    }
    const { from, to } = this.window();
    for (const one of this.charts) one.chart?.setScale("x", { min: from, max: to });
  }

  redraw() {
    for (const one of this.charts) {
      one.shape = "";
      if (one.lines.length) one.draw();
    }
  }

  async load() {
    if (this.busy) return;
    this.busy = true;
    try {
      const found = new Map();
      for (const by of new Set(this.charts.map((one) => one.by))) {
        const metrics = [...new Set(this.charts.filter((one) => one.by === by).flatMap((one) => one.metrics))];
        for (const series of await this.fetch(metrics, by)) found.set(`${series.metric}@${by}`, series);
      }
      for (const one of found.values()) for (const line of one.lines) this.order(line.label);
      for (const one of this.charts) one.take(found);
    } catch {
      for (const one of this.charts) if (!one.chart) one.empty.textContent = this.text("failed");
    } finally {
      this.busy = false;
    }
  }

  async fetch(metrics, by) {
    const query = new URLSearchParams({ metric: metrics.join(","), by, range_seconds: String(this.span) });
    const { deployment, node, fleet } = this.element.dataset;
    if (deployment && by === "version") query.set("deployment", deployment);
    else if (fleet) query.set("fleet", fleet);
    if (node) query.set("node", node);
    const answer = await fetch(`${this.element.dataset.query}?${query}`, { headers: { Accept: "application/json" }, credentials: "same-origin" });
    if (!answer.ok) throw new Error(String(answer.status));
    return (await answer.json()).series;
  }
}

function start() {
  for (const element of document.querySelectorAll("[data-charts]")) new Board(element);
}
if (window.uPlot) start();
else addEventListener("DOMContentLoaded", start);
