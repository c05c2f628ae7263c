// The connection to the server: streams of changes, requests, and the notice while nobody answers.

const FIRST = 300; // milliseconds before the first attempt after a lost connection
const LONGEST = 15000; // milliseconds between two attempts
const stored = `typed:${location.pathname}`;
const notice = document.querySelector("#gone");
const link = document.querySelector("#link");
let lost = false;

export const gone = () => lost;

// Loads the page again without losing what a person typed.
export function reload() {
  const typed = [...document.querySelectorAll("form")].map((form) => [...form.elements]
    .filter((one) => one.name && !["hidden", "submit", "button"].includes(one.type))
    .map((one) => [one.name, one.type === "checkbox" ? one.checked : one.value]));
  const open = [...document.querySelectorAll("details.action")].map((one) => one.open);
  try { sessionStorage.setItem(stored, JSON.stringify({ typed, open })); } catch { /* a private window */ }
  location.reload();
}

// Puts back what was typed, if the page still has the same forms.
export function restore() {
  let kept = null;
  try { kept = JSON.parse(sessionStorage.getItem(stored)); sessionStorage.removeItem(stored); } catch { return; }
  if (!kept) return;
  const forms = [...document.querySelectorAll("form")];
  forms.forEach((form, place) => {
    for (const [name, value] of kept.typed[place] || []) {
      const field = form.elements[name];
      if (!(field instanceof Element)) continue;
      if (field.type === "checkbox") field.checked = value;
      else field.value = value;
    }
  });
  document.querySelectorAll("details.action").forEach((one, place) => { one.open ||= Boolean(kept.open[place]); });
}

// A request; without an answer the page says so, and keeps what was typed.
export async function tryFetch(url, options) {
  try {
    return await fetch(url, options);
  } catch {
    lose();
    throw new Error("The server does not answer. What you typed is kept.");
  }
}

function lose() {
  if (lost) return;
  lost = true;
  notice.hidden = false;
  wait(2 * FIRST);
}

// Attempts with growing pauses, until the server answers.
function wait(pause) {
  const seconds = Math.max(1, Math.round(pause / 1000));
  notice.textContent = `The server does not answer. What you typed is kept. Next attempt in ${seconds} s. `;
  const button = document.createElement("button");
  button.textContent = "Try now";
  notice.append(button);
  const timer = setTimeout(attempt, pause);
  button.addEventListener("click", () => { clearTimeout(timer); attempt(); });
  async function attempt() {
    try {
      const answer = await fetch(new URL("/", location.href), { method: "HEAD", cache: "no-store" });
      if (answer.ok) reload();
      else notice.textContent = "The server was started again. Open the address that loopwright ui printed.";
    } catch {
      wait(Math.min(2 * pause, LONGEST));
    }
  }
}

// Follows a stream. A dropped line is connected again at once; if nobody answers, the page says so.
export function follow(url, update) {
  let last = "", stream = null, failures = 0;
  function connect() {
    stream = new EventSource(url(last));
    stream.onopen = () => { failures = 0; link.textContent = "live"; link.className = "link live"; };
    stream.onmessage = (event) => { last = event.lastEventId || last; update(JSON.parse(event.data), stream); };
    stream.onerror = () => {
      stream.close();
      link.textContent = "reconnecting";
      link.className = "link lost";
      failures += 1;
      if (failures > 2) lose();
      else setTimeout(connect, FIRST * failures);
    };
  }
  connect();
  // Browsers allow six connections per host, and a page in the history could keep one.
  addEventListener("pagehide", () => stream.close());
}
