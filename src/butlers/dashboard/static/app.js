// Enhances pages that work without it: keys, local times, selection of ranges, filters, and live updates.
const one = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];

// Times in the reader's zone; the exact time is in the title.
const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const relative = new Intl.RelativeTimeFormat(undefined, { numeric: "auto" });
const units = [["year", 31536000], ["month", 2592000], ["day", 86400], ["hour", 3600], ["minute", 60]];
function localTimes(root) {
  for (const element of all("time[datetime]", root)) {
    const when = new Date(element.dateTime);
    if (Number.isNaN(when.valueOf())) continue;
    const seconds = (when - Date.now()) / 1000;
    const [unit, size] = units.find(([, each]) => Math.abs(seconds) >= each) ?? ["second", 1];
    element.title = full.format(when);
    if (!element.hasAttribute("data-date")) element.textContent = relative.format(Math.round(seconds / size), unit);
  }
}

// Rows: j and k move, Enter opens, x selects.
const rows = () => all("main tr[data-href], main li[data-href]");
let current = -1;
function move(step) {
  const list = rows();
  if (!list.length) return;
  list[current]?.removeAttribute("aria-selected");
  current = Math.max(0, Math.min(list.length - 1, current + step));
  list[current].setAttribute("aria-selected", "true");
  (one("a", list[current]) ?? list[current]).focus();
}

// Selection: shift-click selects a range, and the button says how many are selected.
let lastBox = null;
function countSelected() {
  const chosen = all("input[name=id]:checked").length;
  for (const button of all("[data-count]")) button.textContent = button.dataset.count + (chosen ? ` ${chosen}` : "");
}
document.addEventListener("click", (event) => {
  const box = event.target.closest?.("input[name=id]");
  if (!box) return;
  const boxes = all("input[name=id]");
  if (event.shiftKey && lastBox) {
    const [from, to] = [boxes.indexOf(lastBox), boxes.indexOf(box)].sort((a, b) => a - b);
    for (const each of boxes.slice(from, to + 1)) each.checked = box.checked;
  }
  lastBox = box;
  countSelected();
});
document.addEventListener("change", ({ target }) => target.closest("form[data-submit-on-change]") && target.form.requestSubmit());

// A correction: what it removes and adds, below its field.
document.addEventListener("input", ({ target: field }) => {
  if (!field.matches("[data-diff]")) return;
  const [old, now] = [field.defaultValue, field.value].map((text) => text.split(/(?<=\s)/));
  let [start, end] = [0, 0];
  while (start < Math.min(old.length, now.length) && old[start] === now[start]) start += 1;
  while (end < Math.min(old.length, now.length) - start && old.at(-1 - end) === now.at(-1 - end)) end += 1;
  const part = (tag, words) => Object.assign(document.createElement(tag), { textContent: words.slice(start, words.length - end).join("") });
  one("output", field.form).replaceChildren(old.slice(0, start).join(""), part("del", old), part("ins", now), old.slice(old.length - end).join(""));
});

// Keys.
let pending = "";
const keys = {
  "/": () => one("#find")?.focus(),
  "?": () => one("#keys")?.showModal(),
  j: () => move(1),
  k: () => move(-1),
  Enter: () => rows()[current] && one("a", rows()[current])?.click(),
  x: () => rows()[current] && one("input[name=id]", rows()[current])?.click(),
  g: () => { pending = "g"; setTimeout(() => { pending = ""; }, 1000); },
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog[open]")) return;
  if (event.key === "Enter" && event.target.closest("a, button, summary")) return;
  const act = pending ? one(`header a[data-key="${CSS.escape(event.key)}"]`) : one(`main [data-act="${CSS.escape(event.key)}"]`);
  const handler = act ? () => act.click() : pending ? null : keys[event.key];
  if (event.key !== "g") pending = "";
  if (handler) { event.preventDefault(); handler(); }
});

// Live: fetch this page again on a signal and replace its content, unless the reader is busy in it.
const isBusy = () => document.hidden || String(getSelection()).length > 0
  || one("main :focus, main input:checked, main details[open], main dialog[open], main [data-keep]")
  || all("main input, main textarea").some((field) => field.value !== field.defaultValue);
function refresh() {
  if (isBusy()) return;
  const request = new XMLHttpRequest();
  request.open("GET", location.href);
  request.responseType = "document";
  request.onload = () => {
    const fresh = request.status === 200 && request.response?.querySelector("main");
    if (!fresh || isBusy()) return;
    one("main").replaceChildren(...document.adoptNode(fresh).childNodes);
    one("header nav").replaceChildren(...document.adoptNode(request.response.querySelector("header nav")).childNodes);
    localTimes(document);
  };
  request.send();
}
// A hidden page does not listen: a browser opens six connections to a host at most, for all pages together.
let source = null;
function listen() {
  source?.close();
  source = document.hidden ? null : new EventSource(document.body.dataset.live);
  source?.addEventListener("change", refresh);
}
if (document.body.dataset.live) {
  listen();
  document.addEventListener("visibilitychange", () => { listen(); refresh(); });
  addEventListener("pagehide", () => source?.close());
}
// A ticket of `butlers open` comes in the fragment, which no log and no other site sees.
const ticketForm = one("form[data-ticket]");
if (ticketForm && location.hash.startsWith("#ticket=")) {
  one("[name=credential]", ticketForm).value = location.hash.slice("#ticket=".length);
  history.replaceState(null, "", location.pathname + location.search);
  ticketForm.submit();
}
localTimes(document);
countSelected();
