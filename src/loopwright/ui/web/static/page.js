// The page's script: forms that change runs, rows that open, streams of updates.
import { draw, grow, numbers } from "./charts.js";
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
    const answer = await fetch(url, { headers: { accept: "text/html" } });
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

function query(url, values) {
  return `${url}?${new URLSearchParams(values)}`;
}

// Opens or closes the row with the details of an iteration.
async function toggle(button) {
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
  await load(query(`${runUrl}/iteration`, { loop: button.dataset.loop, number: button.dataset.number }), cell);
}

// Open rows stay open after a reload, which some changes of a run require.
const storageKey = runPage && `open:${runPage.dataset.run}`;
function rememberOpenRows() {
  const open = $$("button.open[aria-expanded=true]").map((b) => [b.dataset.loop, b.dataset.number]);
  try { sessionStorage.setItem(storageKey, JSON.stringify(open.slice(0, 20))); } catch { /* a private window */ }
}
function openRememberedRows() {
  try {
    for (const [loop, number] of JSON.parse(sessionStorage.getItem(storageKey) || "[]")) {
      const button = $$("button.open").find((b) => b.dataset.loop === loop && b.dataset.number === number);
      if (button) toggle(button);
    }
  } catch { /* nothing is stored */ }
}

// Loads rows when they become visible: a loop may have thousands.
async function fill(chunk) {
  if (chunk.dataset.loading) return;
  chunk.dataset.loading = "yes";
  const loop = chunk.closest("table").dataset.loop;
  const place = document.createElement("div");
  await load(query(`${runUrl}/rows`, { loop, offset: chunk.dataset.offset, limit: chunk.dataset.limit }), place);
  const rows = $$("tr", place);
  if (!rows.length) { delete chunk.dataset.loading; return; }
  chunk.classList.remove("chunk");
  chunk.replaceChildren(...rows);
}
const visibility = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) if (isIntersecting) { visibility.unobserve(target); fill(target); }
}, { rootMargin: "200px" });

function ready(within) {
  for (const chunk of $$("tbody.chunk", within)) visibility.observe(chunk);
  for (const folded of $$("details.inner, details.timeline, details.limits, details.numbers, details.changes", within)) {
    folded.addEventListener("toggle", () => loadContent(folded));
    if (folded.open && folded.matches(".inner") && !$(".into", folded).childElementCount) loadContent(folded);
  }
}

function loadContent(folded) {
  const into = $(".into", folded);
  if (!folded.open) return;
  if (folded.matches(".numbers")) numbers(folded.closest(".loop"), folded.closest(".chart"), into);
  else if (into.childElementCount) return;
  else if (folded.matches("[data-url]")) load(folded.dataset.url, into);
  else load(query(`${runUrl}/rows`, { loop: folded.dataset.loop, table: "yes" }), into);
}

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
  const answer = await fetch(url, {
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
    if (reply.go === location.pathname) location.reload();
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
    load(query(form.action, { ...Object.fromEntries(new FormData(form)), part: "yes" }), form.nextElementSibling);
  }
});
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button");
  if (button?.matches(".open")) toggle(button);
  else if (button?.matches(".more")) fill(button.closest("tbody"));
  else if (button?.matches(".more-effects")) {
    const place = document.createElement("div");
    button.replaceWith(place);
    await load(button.dataset.url, place);
  }
});

// After a lost connection the browser itself connects again and sends the ID of the last event.
const link = $("#link");
function follow(url, update) {
  const stream = new EventSource(url);
  stream.onopen = () => { link.textContent = "live"; link.className = "link live"; };
  stream.onerror = () => { link.textContent = "reconnecting"; link.className = "link lost"; };
  stream.onmessage = (event) => update(JSON.parse(event.data), stream);
  // Browsers allow six connections per host, and a page in the history could keep one.
  addEventListener("pagehide", () => stream.close());
}

function updateRun(changes, stream) {
  if (changes.problem) { stream.close(); link.textContent = changes.problem; return; }
  const head = fragment(changes.head).firstElementChild;
  const before = $("#head").dataset.status;
  // A new status changes the forms of the page.
  if (changes.reload || (changes.status !== before && before !== "")) { location.reload(); return; }
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
  const body = $$(`table.iterations > tbody`, $(".wide", section)).at(-1);
  for (const [number, html] of added.rows) {
    // After a gap in the stream, rows may arrive twice.
    if ($(`tr.iteration[data-number="${number}"]`, $("table.iterations", section))) continue;
    body.append(fragment(`<table><tbody>${html}</tbody></table>`).querySelector("tr"));
  }
  for (const row of $$("tr.iteration", $("table.iterations", section))) row.classList.toggle("best", Number(row.dataset.number) === added.best);
  const count = $(".count", section);
  count.textContent = count.textContent.replace(/^\d+ (iteration|item)s?/, (_, unit) => `${added.count} ${unit}${added.count === 1 ? "" : "s"}`);
  for (const field of $$(".compare input[type=number]", section)) field.max = added.count;
  if (grow(section, added.points)) location.reload(); // its first curve
  inside(`${loop}/`);
}

// Loads the inner loops of the iteration in progress, once in 150 ms: several may begin together.
const waiting = new Map();
function inside(path) {
  const section = $$(".loop").filter((one) => path.startsWith(`${one.dataset.loop}/`)).at(-1);
  if (!section) { location.reload(); return; }
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
    if (changes.order.length) location.reload();
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
if (runPage) {
  $$(".loop").forEach(draw);
  openRememberedRows();
  setInterval(tick, 100);
  tick();
  if (runPage.dataset.live === "true") {
    const rewinds = $("#head").dataset.rewinds;
    follow(query(`${runUrl}/events`, { after: runPage.dataset.last, rewinds }), updateRun);
  }
}
const list = $("#runs");
if (list) arrange(list);
if (list) follow(list.dataset.events, updateRuns);

// Tables that are fetched again while the page is visible.
const refreshed = document.querySelector('[data-refresh]');
if (refreshed) {
  setInterval(async () => {
    if (document.hidden) return;
    try {
      const response = await fetch(refreshed.dataset.refresh);
      if (response.ok) refreshed.innerHTML = await response.text();
    } catch {
      // The server is away; the next attempt follows.
    }
  }, 2000);
}
