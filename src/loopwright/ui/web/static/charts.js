// Interactive curves of a loop by uPlot, in place of the server's drawings, and their values as tables.
const KINDS = { score: 1, cost: 2, time: 3, metric: 4 };
const SHOWN = {
  score: (v) => v.toFixed(2),
  metric: (v) => String(+v.toPrecision(6)),
  cost: (v) => `$${v.toFixed(v < 0.01 ? 4 : 2)}`,
  time: (v) => (v < 1 ? `${+(v * 1000).toFixed(v < 0.01 ? 1 : 0)} ms` : `${v.toFixed(1)} s`),
};
const plots = new Map(); // the uPlot object of each chart element

const points = (section) => JSON.parse(section.dataset.points);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function columns(section, kind) {
  const rows = points(section);
  const place = KINDS[kind];
  const threshold = Number(section.dataset.threshold);
  const data = [rows.map((p) => p[0]), rows.map((p) => p[place])];
  if (kind === "score" && section.dataset.threshold) data.push(rows.map(() => threshold));
  return data;
}

// The library is not a module, and a page without curves does not need it.
let library = null;
function loaded() {
  library ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = new URL("./uplot.js", import.meta.url);
    script.onload = resolve;
    script.onerror = reject;
    document.head.append(script);
  });
  return library;
}

// The page shows the server's drawings at once; the interactive curves replace them when the browser is idle.
export async function draw(section) {
  const charts = [...section.querySelectorAll(".chart")];
  if (!charts.length) return;
  await idle();
  await loaded();
  for (const chart of charts) {
    make(section, chart);
    await idle();
  }
}

// Safari has no requestIdleCallback.
const idle = () => new Promise((go) => (window.requestIdleCallback ? requestIdleCallback(go, { timeout: 300 }) : setTimeout(go, 1)));

function make(section, chart) {
  const kind = chart.dataset.kind;
  const plot = chart.querySelector(".plot");
  const data = columns(section, kind);
  const line = colour("--line");
  const axis = { stroke: colour("--dim"), grid: { stroke: colour("--rule"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
  const series = [{}, { stroke: line, width: 2, points: { show: data[0].length < 60, size: 6, fill: line }, spanGaps: true }];
  if (data.length > 2) series.push({ stroke: colour("--wanted"), width: 1.5, dash: [5, 4], points: { show: false } });
  const options = {
    width: Math.max(160, plot.clientWidth), height: 150, legend: { show: false }, series,
    cursor: { y: false, points: { size: 8 } },
    scales: { x: { time: false, range: (_, low, high) => (low === high ? [low - 1, high + 1] : [low, high]) }, y: { range: (_, low, high) => (kind === "score" ? [0, 1] : [Math.min(0, low), (high || 1) * 1.08]) } },
    axes: [
      { ...axis, size: 26, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500] },
      { ...axis, size: 58, values: (_, ticks) => ticks.map(SHOWN[kind]) },
    ],
    hooks: { setCursor: [(u) => showValue(u, plot, kind)] },
  };
  // Otherwise the listeners of the old curve would stay.
  plots.get(chart)?.destroy();
  // uPlot draws on a canvas, which screen readers cannot read: the server's description stays.
  const before = plot.getAttribute("aria-label");
  plot.replaceChildren();
  plots.set(chart, new window.uPlot(options, data, plot));
  plot.setAttribute("aria-label", before);
}

// Shows the value below the pointer in the title.
function showValue(u, plot, kind) {
  const caption = plot.parentElement.querySelector("figcaption");
  caption.dataset.title ??= caption.textContent;
  const at = u.cursor.idx;
  const value = at == null ? null : u.data[1][at];
  caption.textContent = value == null ? caption.dataset.title : `${caption.dataset.title}: ${SHOWN[kind](value)} in iteration ${u.data[0][at]}`;
}

// Adds new points. Returns true if the section has enough points for its first chart, which the server draws.
export function grow(section, added) {
  const byNumber = new Map(points(section).map((p) => [p[0], p]));
  for (const point of added) byNumber.set(point[0], point);
  // Events may repeat a point or arrive late, so the points are kept by number.
  const all = [...byNumber.values()].sort((a, b) => a[0] - b[0]);
  section.dataset.points = JSON.stringify(all);
  for (const chart of section.querySelectorAll(".chart")) {
    plots.get(chart)?.setData(columns(section, chart.dataset.kind));
    const open = chart.querySelector(".numbers[open] .into");
    if (open) numbers(section, chart, open);
  }
  return all.length > 1 && !section.querySelector(".chart") && all.some((p) => p[1] || p[2] || p[3] || p[4]);
}

export function numbers(section, chart, into) {
  const kind = chart.dataset.kind;
  const table = document.createElement("table");
  table.createCaption().textContent = chart.querySelector("figcaption").dataset.title || chart.querySelector("figcaption").textContent;
  table.caption.className = "sr";
  const head = table.createTHead().insertRow();
  for (const word of ["Iteration", kind === "metric" ? "Value" : kind === "score" ? "Score" : kind === "cost" ? "Cost" : "Time"]) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = word;
    head.append(cell);
  }
  const body = table.createTBody();
  for (const point of points(section)) {
    const row = body.insertRow();
    const value = point[KINDS[kind]];
    row.insertCell().textContent = point[0];
    row.insertCell().textContent = value == null ? "none" : SHOWN[kind](value);
  }
  into.replaceChildren(table);
}

let waiting = 0;
function redraw() {
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(() => document.querySelectorAll(".loop").forEach(draw));
}
if (document.querySelector(".chart")) {
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; redraw(); } });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}
