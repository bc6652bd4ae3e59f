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

// A part that holds the focus keeps it, also where several links have one address.
function replace(part, html) {
  const focused = part.contains(document.activeElement) ? document.activeElement : null;
  const alike = focused && likes(focused);
  const place = alike ? [...part.querySelectorAll(alike)].indexOf(focused) : 0;
  const scrolled = [...part.querySelectorAll(".wide")].map((each) => each.scrollLeft);
  const opened = [...part.querySelectorAll("details[open]")].map((each) => each.id);
  part.innerHTML = html;
  localize(part);
  part.querySelectorAll(".wide").forEach((each, index) => { each.scrollLeft = scrolled[index] ?? 0; });
  opened.forEach((id) => document.getElementById(id)?.setAttribute("open", ""));
  if (alike) {
    const found = part.querySelectorAll(alike);
    (found[place] ?? found[0])?.focus({preventScroll: true});
  }
}

const status = document.getElementById("live");
localize(document);
const source = new EventSource(window.location.href);
function tell(words, isLive) {
  status.textContent = words;
  status.className = isLive ? "is-live" : "is-lost";
}
source.onopen = () => tell("live", true);
source.onerror = () => {
  if (!status.textContent.startsWith("not connected")) tell(`not connected since ${zone.format(new Date())}`, false);
};
source.onmessage = (event) => {
  const {parts, changed, status: code, is_silent: isSilent} = JSON.parse(event.data);
  const main = document.getElementById("main");
  // What was not found, or not known, has another title and other forms.
  if (code === 200 && main.dataset.status !== "200") { window.location.reload(); return; }
  tell(isSilent ? "no news" : "live", !isSilent);
  for (const each of main.querySelectorAll(":scope > section")) if (!parts.includes(each.id)) each.remove();
  let previous = null;
  for (const name of parts) {
    let part = document.getElementById(name);
    if (!part) {
      part = document.createElement("section");
      part.id = name;
      if (previous) previous.after(part); else main.append(part);
    }
    if (name in changed) replace(part, changed[name]);
    previous = part;
  }
};
window.addEventListener("pagehide", () => source.close());
window.addEventListener("pageshow", (event) => { if (event.persisted) window.location.reload(); });
