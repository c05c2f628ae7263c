// The page's script: forms that change runs, rows that open, streams of updates.
import { choose, draw, enlarge, grow, numbers } from "./charts.js";
import { follow, gone, reload, restore, tryFetch } from "./connection.js";
import { arrange } from "./list.js";

const $ = (selector, within = document) => within.querySelector(selector);
const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];
const runPage = $("#run");
const runUrl = runPage && `/runs/${encodeURIComponent(runPage.dataset.run)}`;

// The server has escaped this markup. DOMParser runs no scripts, and the security policy forbids them.
function fragment(html) {
  const parsed = new DOMParser().parseFromString(`<template>${html}</template>`, "text/html");
  return document.importNode($("template", parsed).content, true);
}

async function load(url, into) {
  try {
    const answer = await tryFetch(url, { headers: { accept: "text/html" } });
    const text = await answer.text();
    if (!answer.ok) throw new Error(new DOMParser().parseFromString(text, "text/html").querySelector("main p")?.textContent || answer.statusText);
    into.replaceChildren(fragment(text));
    ready(into);
  } catch (problem) {
    const message = document.createElement("p");
    message.className = "error";
    message.textContent = `Loading failed: ${problem.message}`;
    into.replaceChildren(message);
  }
}

export function query(url, values) {
  return `${url}?${new URLSearchParams(values)}`;
}

// Opens or closes the row with the details of an iteration.
async function toggle(button, silent = false) {
  const row = button.closest("tr");
  const next = row.nextElementSibling;
  if (next?.classList.contains("opened")) {
    next.remove();
    button.setAttribute("aria-expanded", "false");
    rememberOpenRows();
    return;
  }
  const opened = document.createElement("tr");
  opened.className = "opened";
  const cell = opened.insertCell();
  cell.colSpan = row.cells.length;
  cell.textContent = "…";
  row.after(opened);
  button.setAttribute("aria-expanded", "true");
  rememberOpenRows();
  // The address names the row that was opened last, so that it can be sent to another person.
  if (!silent && button.dataset.loop) history.replaceState(null, "", `#${encodeURI(`${button.dataset.loop}/${button.dataset.number}`)}`);
  await load(button.dataset.url || query(`${runUrl}/iteration`, { loop: button.dataset.loop, number: button.dataset.number }), cell);
}

// Open rows stay open after a reload, which some changes of a run require.
const storageKey = runPage && `open:${runPage.dataset.run}`;
function rememberOpenRows() {
  const open = $$("button.open[data-loop][aria-expanded=true]").map((b) => [b.dataset.loop, b.dataset.number]);
  try { sessionStorage.setItem(storageKey, JSON.stringify(open.slice(0, 20))); } catch { /* a private window */ }
}
function openRememberedRows() {
  try {
    for (const [loop, number] of JSON.parse(sessionStorage.getItem(storageKey) || "[]")) {
      const button = $$("button.open").find((b) => b.dataset.loop === loop && b.dataset.number === number);
      if (button) toggle(button, true);
    }
  } catch { /* nothing is stored */ }
}

// Shows other rows of a table: another page, or those of one status.
async function turn(button) {
  const { url } = button.dataset;
  const rows = button.closest(url ? ".into" : ".rows");
  const status = button.dataset.status ?? ($(".filters [aria-pressed=true]", rows)?.dataset.status || "");
  const label = button.textContent;
  await load(url || query(`${runUrl}/rows`, { loop: rows.dataset.loop, offset: button.dataset.offset || 0, status }), rows);
  // The pressed button was replaced, and the keyboard would begin at the top of the page again.
  ($$("button.turn", rows).find((one) => one.textContent === label && !one.disabled) || $(".wide", rows))?.focus();
}

function ready(within) {
  for (const folded of $$("details.inner, details.trace, details.limits, details.numbers, details.changes, details.lazy", within)) {
    folded.addEventListener("toggle", () => loadContent(folded));
    if (folded.open && folded.matches(".inner") && !$(".into", folded).childElementCount) loadContent(folded);
  }
}

// Opening a fold by a script asks for its content too, and so does its event: both wait for the first request.
const requested = new WeakMap();
async function loadContent(folded, url = "") {
  const into = $(":scope > .into", folded);
  if (!folded.open) return;
  if (folded.matches(".numbers")) numbers(folded.closest(".loop"), folded.closest(".chart"), into);
  else if (!into.childElementCount || requested.has(folded)) {
    const inner = folded.matches(".inner") && query(`${runUrl}/rows`, { loop: folded.dataset.loop });
    if (!requested.has(folded)) requested.set(folded, load(url || inner || folded.dataset.url, into));
    await requested.get(folded);
    requested.delete(folded);
  }
}

// Opens what the address names: `#LOOP/12` is a row, also of another page of rows or inside another row; any other
// path, and `#trace:PATH`, is a place in the trace.
async function goTo(hash) {
  let path = "";
  try { path = decodeURIComponent(hash.slice(1)); } catch { return; }
  const traced = path.startsWith("trace:");
  if (!runPage || (document.getElementById(path) && !traced)) {
    if (path === "trace") $("#trace").open = true;
    return;
  }
  path = path.replace(/^trace:/, "");
  if (!path || (!traced && (await openRow(path)))) return;
  await openTrace(path);
}

async function openRow(path) {
  const section = $$(".loop").find((one) => path.startsWith(`${one.dataset.loop}/`));
  if (!section) return false;
  let rows = $(".rows", section);
  for (;;) {
    const loop = rows.dataset.loop;
    const number = path.slice(loop.length + 1).match(/^\d+(?=\/|$)/)?.[0];
    if (!number) return false;
    const found = () => $$("button.open", rows).find((one) => one.dataset.loop === loop && one.dataset.number === number);
    if (!found()) await load(query(`${runUrl}/rows`, { loop, at: number }), rows);
    const button = found();
    if (!button) return false;
    const last = path === `${loop}/${number}`;
    if (!last && !/\/\d+$/.test(path)) return false;
    if (button.getAttribute("aria-expanded") !== "true") await toggle(button, true);
    if (last) { arrive(button.closest("tr"), button); return true; }
    const detail = button.closest("tr").nextElementSibling;
    const inner = $$("details.inner", detail).find((one) => path.startsWith(`${one.dataset.loop}/`));
    if (!inner) return false;
    inner.open = true;
    await loadContent(inner);
    rows = $(":scope > .rows", inner);
    if (!$("table", rows)) await load(query(`${runUrl}/rows`, { loop: inner.dataset.loop }), rows);
  }
}

async function openTrace(path) {
  const trace = $("#trace");
  if (!trace) return; // the cases of an evaluation have their own
  trace.open = true;
  await loadContent(trace);
  let node = trace;
  for (;;) {
    // The nearest place around the path that is shown.
    const places = $$("[data-path]", node).filter((one) => path === one.dataset.path || path.startsWith(`${one.dataset.path}/`));
    const next = places.sort((a, b) => a.dataset.path.length - b.dataset.path.length).at(-1);
    if (!next || next === node) break;
    node = next;
    for (let fold = node.closest("details"); fold && fold !== trace; fold = fold.parentElement.closest("details")) fold.open = true;
    const fold = $(":scope > details", node);
    if (fold) fold.open = true;
    // The wanted page is requested before the event of the opening asks for the first one.
    if (node.dataset.path === path || !fold?.matches(".lazy")) break;
    const number = Number(path.slice(node.dataset.path.length + 1).match(/^\d+/)?.[0] || 1);
    await loadContent(fold, `${fold.dataset.url}&offset=${Math.floor((number - 1) / 50) * 50}`);
  }
  if (node !== trace) arrive(node, $("summary, p", node));
}

function arrive(element, focus) {
  for (const one of $$(".here")) one.classList.remove("here");
  element.classList.add("here");
  focus?.focus({ preventScroll: true });
  element.scrollIntoView({ block: "center" });
}
addEventListener("hashchange", () => goTo(location.hash));

// The buttons of a run: one panel is open at a time, Escape closes it, and it stays within the page.
function openPanel(panel) {
  const summary = $("summary", panel);
  summary.setAttribute("aria-expanded", panel.open);
  if (!panel.open) return;
  const content = summary.nextElementSibling;
  content.style.setProperty("--left", "0px");
  const beyond = content.getBoundingClientRect().right - panel.parentElement.getBoundingClientRect().right;
  if (beyond > 0) content.style.setProperty("--left", `${-beyond}px`);
}
for (const panel of $$("details.action")) {
  openPanel(panel);
  panel.addEventListener("toggle", () => openPanel(panel));
  panel.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !panel.open) return;
    panel.open = false;
    $("summary", panel).focus();
  });
}
addEventListener("resize", () => $$("details.action[open]").forEach(openPanel));

// A change is JSON by POST, with a header that a form of another site cannot send.
async function post(url, values) {
  const answer = await tryFetch(url, {
    method: "POST",
    headers: { "content-type": "application/json", "x-loopwright": "1" },
    body: JSON.stringify(values),
  });
  const reply = await answer.json();
  if (reply.error) throw new Error(reply.error);
  return reply;
}

function confirmed(question) {
  const dialog = $("#confirm");
  $("p", dialog).textContent = question;
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true }));
}

async function change(form, button) {
  const values = Object.fromEntries(new FormData(form));
  // FormData omits unchecked boxes.
  for (const box of $$("input[type=checkbox]", form)) values[box.name] = box.checked;
  if (button?.name) values[button.name] = button.value;
  const outcome = $(".outcome", form);
  const buttons = $$("button", form);
  for (const one of buttons) one.disabled = true;
  outcome.classList.remove("error");
  outcome.textContent = "…";
  try {
    const url = button?.dataset.action || form.dataset.action;
    let reply = await post(url, values);
    while (reply.confirm) {
      if (!(await confirmed(reply.confirm))) { outcome.textContent = "Nothing was changed."; return; }
      reply = await post(url, { ...values, confirmed: reply.confirmed });
    }
    outcome.textContent = reply.said || "";
    const limits = form.closest("details.limits");
    if (limits) {
      const page = new DOMParser().parseFromString(await (await fetch(limits.dataset.url)).text(), "text/html");
      $("table", limits).replaceWith($("table", page));
    }
    if (reply.go === location.pathname) location.reload(); // what was typed is done
    else if (reply.go) location.assign(reply.go);
  } catch (problem) {
    outcome.classList.add("error");
    outcome.textContent = problem.message;
  } finally {
    for (const one of buttons) one.disabled = false;
  }
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.matches("form.change")) {
    event.preventDefault();
    change(form, event.submitter);
  } else if (form.matches("form.compare")) {
    event.preventDefault();
    load(query(form.action, { ...Object.fromEntries(new FormData(form)), part: "yes" }), form.closest(".cases") || form.nextElementSibling);
  } else if (form.matches("form.go")) {
    event.preventDefault();
    visit(`#${form.closest(".loop").dataset.loop}/${$("input", form).value}`);
  }
});
// A link to the place that the address names already opens it again.
function visit(hash) {
  const before = location.hash;
  location.hash = hash;
  if (location.hash === before) goTo(hash);
}
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button");
  if (button?.matches(".open")) toggle(button);
  else if (button?.matches(".turn")) await turn(button);
  else if (button?.matches(".copy")) await copy(button);
  else if (button?.matches(".grow")) enlarge(button);
  const anchor = event.target.closest("a[href^='#']");
  if (anchor && anchor.hash === location.hash) goTo(anchor.hash);
});
document.addEventListener("change", (event) => {
  if (event.target.closest(".chart figcaption")) choose(event.target.closest(".chart"));
});

async function copy(button) {
  const label = button.firstChild;
  try {
    await navigator.clipboard.writeText($("pre", button.closest(".told")).textContent);
    label.data = "Copied";
  } catch { label.data = "Not allowed"; }
  setTimeout(() => { label.data = "Copy"; }, 2000);
}

// One key each, unless a person types or switched them off.
const keysStored = "keys-off";
const KEYS = {
  b: () => $(".to-best")?.click(),
  f: () => $(".to-failure")?.click(),
  g: () => $(".go input")?.focus(),
  t: () => visit("#trace"),
};
if (runPage) {
  const dialog = $("#keys"), on = $("#keys-on");
  on.checked = localStorage.getItem(keysStored) === null;
  on.addEventListener("change", () => (on.checked ? localStorage.removeItem(keysStored) : localStorage.setItem(keysStored, "yes")));
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select") || $("dialog[open]")) return;
    if (event.key === "?") dialog.showModal();
    else if (on.checked && KEYS[event.key]) { event.preventDefault(); KEYS[event.key](); }
  });
}

const link = $("#link");
function updateRun(changes, stream) {
  if (changes.problem) { stream.close(); link.textContent = changes.problem; return; }
  const head = fragment(changes.head).firstElementChild;
  const before = $("#head").dataset.status;
  // A new status changes the forms of the page.
  if (changes.reload || (changes.status !== before && before !== "")) { reload(); return; }
  // The lines of an agent change the head without an entry, and must not set its clocks back.
  const clocks = new Map($$(".since").map((one) => [one.dataset.path + one.dataset.since, one.dataset.from]));
  for (const one of $$(".since", head)) {
    const from = clocks.get(one.dataset.path + one.dataset.since);
    if (from) one.dataset.from = from;
  }
  $("#head").replaceWith(head);
  tick();
  if (changes.steps) {
    $("#steps")?.replaceWith(fragment(changes.steps).firstElementChild);
    $("#nothing")?.remove();
  }
  for (const [loop, added] of Object.entries(changes.loops || {})) {
    const section = $$(".loop").find((one) => one.dataset.loop === loop);
    if (section) addTo(section, loop, added);
    else inside(loop);
  }
}

function addTo(section, loop, added) {
  const table = $("table.iterations", section), body = $(":scope > tbody", table);
  // Another page than the last one, or one of a single status, stays as it is.
  for (const [number, html] of "open" in table.dataset ? added.rows : []) {
    // After a gap in the stream, rows may arrive twice.
    if ($(`tr.iteration[data-number="${number}"]`, table)) continue;
    const row = fragment(`<table><tbody>${html}</tbody></table>`).querySelector("tr");
    body.append(row);
    for (const column of ["score", "of-verdict", "feedback", "calls", "cost"])
      if ($(`.${column}`, row).textContent.trim()) table.classList.remove(`no-${column.replace("of-", "")}`);
  }
  for (const row of $$("tr.iteration", $("table.iterations", section))) row.classList.toggle("best", Number(row.dataset.number) === added.best);
  const count = $(".count", section);
  count.textContent = count.textContent.replace(/^\d+ (iteration|item)s?/, (_, unit) => `${added.count} ${unit}${added.count === 1 ? "" : "s"}`);
  for (const field of $$(".compare input[type=number]", section)) field.max = added.count;
  if (grow(section, added.points)) reload(); // its first curve
  inside(`${loop}/`);
}

// Loads the inner loops of the iteration in progress, once in 150 ms: several may begin together.
const waiting = new Map();
function inside(path) {
  const section = $$(".loop").filter((one) => path.startsWith(`${one.dataset.loop}/`)).at(-1);
  if (!section) { reload(); return; }
  const place = $(".inside", section);
  if (waiting.has(place)) return;
  waiting.set(place, setTimeout(() => {
    waiting.delete(place);
    load(query(`${runUrl}/inside`, { loop: section.dataset.loop }), place);
  }, 150));
}

function tick() {
  for (const since of $$(".since")) {
    since.dataset.from ??= performance.now() - 1000 * Number(since.dataset.since);
    since.textContent = `${((performance.now() - since.dataset.from) / 1000).toFixed(1)} s`;
  }
}

function updateRuns(changes) {
  const table = $("#runs");
  if (changes.problem) { link.textContent = changes.problem; return; }
  const total = $("#total");
  if (total && typeof changes.total === "number") total.textContent = `${changes.total.toLocaleString("en-US")} ${total.dataset.word}`;
  const body = $("tbody", table);
  if (!body) { // no run matched the filter
    if (changes.order.length) reload();
    return;
  }
  const rows = new Map($$("tr", body).map((row) => [row.dataset.run, row]));
  for (const [id, html] of Object.entries(changes.rows)) {
    const fresh = fragment(`<table><tbody>${html}</tbody></table>`).querySelector("tr");
    const hadFocus = rows.get(id)?.contains(document.activeElement);
    const box = rows.get(id) && $("input[type=checkbox]", rows.get(id));
    if (box?.checked) $("input[type=checkbox]", fresh).checked = true;
    rows.get(id)?.replaceWith(fresh);
    // Replacing a row must not take the focus from a person who uses the keyboard.
    if (hadFocus) $("a", fresh).focus();
    rows.set(id, fresh);
  }
  arrange(table);
  // Under a filter or in another order, rows stay where a person reads them until the page is loaded again.
  if (table.dataset.keeps === "true") return;
  changes.order.forEach((id, place) => {
    const row = rows.get(id);
    if (row && body.children[place] !== row) body.insertBefore(row, body.children[place] || null);
  });
  while (body.children.length > changes.order.length) body.lastElementChild.remove();
}

ready(document);
restore();
if (runPage) {
  $$(".loop").forEach(draw);
  openRememberedRows();
  goTo(location.hash);
  setInterval(tick, 100);
  tick();
  if (runPage.dataset.live === "true") {
    const rewinds = $("#head").dataset.rewinds;
    follow((last) => query(`${runUrl}/events`, { after: last || runPage.dataset.last, rewinds }), updateRun);
  }
}
const list = $("#runs");
if (list) arrange(list);
if (list) follow(() => list.dataset.events, updateRuns);

// Tables that are fetched again while the page is visible.
if ($("[data-refresh]")) {
  setInterval(async () => {
    const refreshed = $("[data-refresh]"); // a filter replaces it
    if (!refreshed || document.hidden || gone()) return;
    try {
      const response = await tryFetch(refreshed.dataset.refresh);
      if (response.ok) refreshed.innerHTML = await response.text();
    } catch {
      // The server is away, which the page says.
    }
  }, 2000);
}
