// The list of runs: columns without a value, times, and the address of a filter.
const COLUMNS = ["scores", "score", "iterations", "cost", "duration"];
const UNITS = [[86400, "d"], [3600, "h"], [60, "min"]];

// Hides the columns in which no row has a value.
export function arrange(table) {
  for (const name of COLUMNS) {
    const cells = [...table.querySelectorAll(`tbody [data-column="${name}"]`)];
    table.classList.toggle(`no-${name}`, cells.length > 0 && !cells.some((cell) => cell.childElementCount || cell.textContent.trim()));
  }
}

// The same words as those of the server, which go on while the page is open.
function ago(at) {
  const past = Math.max(0, (Date.now() - at) / 1000);
  if (past >= 30 * 86400) return null;
  const [size, unit] = UNITS.find(([seconds]) => past >= seconds) || [];
  return size ? `${Math.floor(past / size)} ${unit} ago` : "just now";
}
setInterval(() => {
  for (const time of document.querySelectorAll("#runs time")) time.textContent = ago(Date.parse(time.dateTime)) ?? time.textContent;
}, 10000);

// Empty fields are no part of the address.
document.querySelector("form.filter")?.addEventListener("formdata", ({ formData }) => {
  for (const name of new Set(formData.keys())) {
    const values = formData.getAll(name).filter(Boolean);
    formData.delete(name);
    for (const value of values) formData.append(name, value);
  }
});
