"use strict";
// Shows instants in the reader's zone, and replaces the parts of the page that have changed. All else works without it.
const zone = new Intl.DateTimeFormat(undefined, {hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23"});
const day = new Intl.DateTimeFormat(undefined, {dateStyle: "medium"});

function local(instant) {
  const date = new Date(instant);
  if (Number.isNaN(date.getTime())) return null;
  const isToday = date.toDateString() === new Date().toDateString();
  return isToday ? zone.format(date) : `${day.format(date)} ${zone.format(date)}`;
}

function localize(root) {
  for (const each of root.querySelectorAll("time:not(.ago)")) {
    each.textContent = local(each.dateTime) ?? each.textContent;
  }
  for (const each of root.querySelectorAll("[data-instant]")) {
    each.textContent = local(each.dataset.instant) ?? each.textContent;
  }
}

// The selector of elements with the same address of the link, or the same label of the region; null if it has neither.
function likes(element) {
  const attribute = element.hasAttribute("href") ? "href" : "aria-label";
  const value = element.getAttribute(attribute);
  return value ? `[${attribute}="${CSS.escape(value)}"]` : null;
}

// A timeline is shown from its end, which is now; all else from its beginning.
function isTimeline(wide) {
  return wide.querySelector(".timeline") !== null;
}

function placeOf(wide) {
  return isTimeline(wide) ? wide.scrollWidth - wide.scrollLeft : wide.scrollLeft;
}

function scrollWide(wide, kept) {
  wide.scrollLeft = isTimeline(wide) ? wide.scrollWidth - (kept ?? 0) : kept ?? 0;
}

// A part that holds the focus keeps it, also where several links have one address.
function replace(part, html) {
  const focused = part.contains(document.activeElement) ? document.activeElement : null;
  const alike = focused && likes(focused);
  const place = alike ? [...part.querySelectorAll(alike)].indexOf(focused) : 0;
  const scrolled = [...part.querySelectorAll(".wide")].map(placeOf);
  const opened = [...part.querySelectorAll("details[open]")].map((each) => each.id);
  part.innerHTML = html;
  localize(part);
  part.querySelectorAll(".wide").forEach((each, index) => { scrollWide(each, scrolled[index]); });
  opened.forEach((id) => document.getElementById(id)?.setAttribute("open", ""));
  if (alike) {
    const found = part.querySelectorAll(alike);
    (found[place] ?? found[0])?.focus({preventScroll: true});
  }
}

// Whether the reader has selected text in a part. Replacing it would end the selection, for example before a copy.
function isSelected(part) {
  const selection = document.getSelection();
  if (!selection || selection.isCollapsed) return false;
  return Array.from({length: selection.rangeCount}, (_, index) => selection.getRangeAt(index))
    .some((range) => range.intersectsNode(part));
}

const status = document.getElementById("live");
const main = document.getElementById("main");
// Name of a part -> its HTML as the server sent it last; and those that wait for the end of a selection.
const drawn = document.querySelectorAll("main > section, #faults-found");
const shown = new Map([...drawn].map((each) => [each.id, each.innerHTML]));
const waiting = new Map();
let words = "";

function tell(text, isLive) {
  words = text;
  status.textContent = waiting.size ? `${text}, not where text is selected` : text;
  status.className = isLive ? "is-live" : "is-lost";
}

function normal(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.innerHTML;
}

function update(name, html) {
  const part = document.getElementById(name);
  waiting.delete(name);
  if (shown.get(name) === normal(html)) return;
  if (isSelected(part)) {
    waiting.set(name, html);
    return;
  }
  shown.set(name, normal(html));
  replace(part, html);
}

localize(document);
main.querySelectorAll(".wide").forEach((each) => { if (isTimeline(each)) scrollWide(each); });
const source = new EventSource(window.location.href);
source.onopen = () => tell("live", true);
source.onerror = () => {
  if (!words.startsWith("not connected")) tell(`not connected since ${zone.format(new Date())}`, false);
};
source.onmessage = (event) => {
  const {parts, changed, status: code, is_silent: isSilent} = JSON.parse(event.data);
  // What was not found, or not known, has another title and other forms.
  if (code === 200 && main.dataset.status !== "200") { window.location.reload(); return; }
  for (const each of main.querySelectorAll(":scope > section")) {
    if (parts.includes(each.id)) continue;
    each.remove();
    shown.delete(each.id);
    waiting.delete(each.id);
  }
  let previous = null;
  for (const name of parts) {
    let part = document.getElementById(name);
    if (!part) {
      part = document.createElement("section");
      part.id = name;
      if (previous) previous.after(part); else main.append(part);
    }
    if (name in changed) update(name, changed[name]);
    previous = part;
  }
  tell(isSilent ? "no news" : "live", !isSilent);
};
document.addEventListener("selectionchange", () => {
  if (!waiting.size) return;
  for (const [name, html] of [...waiting]) update(name, html);
  if (!waiting.size) tell(words, status.className === "is-live");
});
window.addEventListener("pagehide", () => source.close());
window.addEventListener("pageshow", (event) => { if (event.persisted) window.location.reload(); });
