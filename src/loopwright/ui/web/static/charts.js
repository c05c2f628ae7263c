// Interactive curves of a loop by uPlot, in place of the server's drawings, and their values as tables.
const CURVES = ".chart:has(.plot)"; // other charts are drawings alone
// The place of a kind in a point. Metrics are `metric-0`, `metric-1`, …
const KINDS = { score: 1, cost: 2, time: 3 };
const placeOf = (kind) => KINDS[kind] ?? 5 + Number(kind.slice(7));
const SHOWN = {
  score: (v) => v.toFixed(2),
  cost: (v) => `$${v.toFixed(v < 0.01 ? 4 : 2)}`,
  time: (v) => (v < 1 ? `${+(v * 1000).toFixed(v < 0.01 ? 1 : 0)} ms` : `${v.toFixed(1)} s`),
};
const number = (v) => (Math.abs(v) < 1e6 ? String(+v.toPrecision(6)) : (+v.toPrecision(6)).toExponential());
const shown = (kind) => SHOWN[kind] ?? number;
const plots = new Map(); // the uPlot object of each chart element

const points = (section) => JSON.parse(section.dataset.points);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const chosen = (chart) => [...chart.querySelectorAll("figcaption input:checked")].map((box) => box.name);

function columns(section, kinds) {
  const rows = points(section);
  const data = [rows.map((p) => p[0]), ...kinds.map((kind) => rows.map((p) => p[placeOf(kind)]))];
  if (wanted(section, kinds)) data.push(rows.map(() => Number(section.dataset.threshold)));
  return data;
}

const wanted = (section, kinds) => kinds.includes("score") && section.dataset.threshold;

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

// The page shows the server's drawing at once; the interactive curves replace it when the browser is idle.
export async function draw(section) {
  const chart = section.querySelector(CURVES);
  if (!chart) return;
  await idle();
  await loaded();
  make(section, chart);
}

// Draws the lines that a person chose; without any, the last choice stays.
export function choose(chart) {
  const boxes = chart.querySelectorAll("figcaption input");
  if (!chosen(chart).length) boxes[0].checked = true;
  make(chart.closest(".loop"), chart);
  const open = chart.querySelector(".numbers[open] .into");
  if (open) numbers(chart.closest(".loop"), chart, open);
}

// Makes a chart larger, or small again.
export function enlarge(button) {
  const chart = button.closest(".chart");
  const large = chart.classList.toggle("large");
  button.setAttribute("aria-expanded", large);
  button.textContent = large ? "Smaller" : "Larger";
  make(chart.closest(".loop"), chart);
}

// Safari has no requestIdleCallback.
const idle = () => new Promise((go) => (window.requestIdleCallback ? requestIdleCallback(go, { timeout: 300 }) : setTimeout(go, 1)));

const COLOURS = { score: "--line", "metric-0": "--line", "metric-1": "--good", "metric-2": "--bad", cost: "--wanted", time: "--dim" };

function make(section, chart) {
  if (!window.uPlot) return;
  const kinds = chosen(chart);
  const plot = chart.querySelector(".plot");
  const data = columns(section, kinds);
  const axis = { stroke: colour("--dim"), grid: { stroke: colour("--rule"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
  const accepted = points(section).map((p, place) => (p[4] === true ? place : -1)).filter((place) => place >= 0);
  const tested = points(section).some((p) => p[4] !== null);
  const series = kinds.map((kind) => {
    const stroke = colour(COLOURS[kind] ?? "--warn");
    // Of an objective the accepted iterations are marked.
    const marks = kind === "metric-0" && tested ? { show: true, filter: () => accepted } : { show: data[0].length < 60 };
    return { scale: kind, stroke, width: 2, points: { size: 6, fill: stroke, ...marks }, spanGaps: true };
  });
  if (wanted(section, kinds)) series.push({ scale: "score", stroke: colour("--wanted"), width: 1.5, dash: [5, 4], points: { show: false } });
  const scale = (kind) => ({ range: (_, low, high) => (kind === "score" ? [0, 1] : [Math.min(0, low), (high || 1) * 1.08]) });
  const options = {
    width: Math.max(160, plot.clientWidth), height: chart.classList.contains("large") ? 360 : 120, legend: { show: false }, series: [{}, ...series],
    cursor: { y: false, points: { size: 8 } },
    scales: { x: { time: false, range: (_, low, high) => (low === high ? [low - 1, high + 1] : [low, high]) }, ...Object.fromEntries(kinds.map((kind) => [kind, scale(kind)])) },
    // The first line has its axis on the left, the second one on the right.
    axes: [
      { ...axis, size: 26, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] },
      ...kinds.slice(0, 2).map((kind, place) => ({ ...axis, scale: kind, side: place ? 1 : 3, grid: { ...axis.grid, show: !place }, size: 58, values: (_, ticks) => ticks.map(shown(kind)) })),
    ],
    hooks: { setCursor: [(u) => showValue(u, chart, kinds)] },
  };
  // Otherwise the listeners of the old curve would stay.
  plots.get(chart)?.destroy();
  // uPlot draws on a canvas, which screen readers cannot read: the server's description stays.
  const before = plot.getAttribute("aria-label");
  plot.replaceChildren();
  plots.set(chart, new window.uPlot(options, data, plot));
  plot.setAttribute("aria-label", before);
}

// Shows the values below the pointer beside the names of the lines.
function showValue(u, chart, kinds) {
  const at = u.cursor.idx;
  const values = at == null ? [] : kinds.map((kind, place) => (u.data[place + 1][at] == null ? "" : shown(kind)(u.data[place + 1][at]))).filter(Boolean);
  chart.querySelector("output.at").textContent = values.length ? `${values.join(", ")} in iteration ${u.data[0][at]}` : "";
}

// Adds new points. Returns true if the section has enough points for its first chart, which the server draws.
export function grow(section, added) {
  const byNumber = new Map(points(section).map((p) => [p[0], p]));
  for (const point of added) byNumber.set(point[0], point);
  // Events may repeat a point or arrive late, so the points are kept by number.
  const all = [...byNumber.values()].sort((a, b) => a[0] - b[0]);
  section.dataset.points = JSON.stringify(all);
  for (const chart of section.querySelectorAll(CURVES)) {
    plots.get(chart)?.setData(columns(section, chosen(chart)));
    const open = chart.querySelector(".numbers[open] .into");
    if (open) numbers(section, chart, open);
  }
  const varies = (place) => new Set(all.map((p) => p[place]).filter((value) => value != null)).size > 1;
  return !section.querySelector(CURVES) && all[0]?.some((_, place) => place && place !== 3 && place !== 4 && varies(place));
}

export function numbers(section, chart, into) {
  const kinds = chosen(chart), words = kinds.map((kind) => chart.querySelector(`.key.${kind}`).textContent);
  const table = document.createElement("table");
  table.createCaption().textContent = words.join(", ");
  table.caption.className = "sr";
  const head = table.createTHead().insertRow();
  for (const word of ["Iteration", ...words]) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = word;
    head.append(cell);
  }
  const body = table.createTBody();
  for (const point of points(section)) {
    const row = body.insertRow();
    row.insertCell().textContent = point[0];
    for (const kind of kinds) row.insertCell().textContent = point[placeOf(kind)] == null ? "none" : shown(kind)(point[placeOf(kind)]);
  }
  into.replaceChildren(table);
}

let waiting = 0;
function redraw() {
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(() => document.querySelectorAll(".loop").forEach(draw));
}
if (document.querySelector(CURVES)) {
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; redraw(); } });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}
