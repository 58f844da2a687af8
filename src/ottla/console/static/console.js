"use strict";
// Live updates: parts of the page, as the server renders them, take the place of older ones.
function replace(element, html) {
  // Where a reader is stays: the link or table that has the focus, how far a table is scrolled,
  // and what is unfolded.
  const active = element.contains(document.activeElement) ? document.activeElement : null;
  const left = element.querySelector(".wide")?.scrollLeft ?? 0;
  const open = [...element.querySelectorAll("details")].map((details) => details.open);
  element.innerHTML = html; // escaped by the template that made it
  const wide = element.querySelector(".wide");
  element.querySelectorAll("details").forEach((details, i) => { details.open = open[i] ?? false; });
  if (wide) wide.scrollLeft = left;
  if (active) {
    const href = active.getAttribute("href");
    const links = [...element.querySelectorAll("a")];
    const other = active.tagName === "SUMMARY" ? element.querySelector("summary") : wide;
    const again = href ? links.find((link) => link.getAttribute("href") === href) : other;
    if (again) again.focus({ preventScroll: true });
  }
}
const live = document.body.dataset.live;
if (live) {
  const state = document.getElementById("live-state");
  const source = new EventSource(live);
  source.addEventListener("open", () => { state.textContent = "· live"; });
  source.addEventListener("error", () => {
    state.textContent = source.readyState === EventSource.CLOSED
      ? "· not live: load the page again" : "· the connection was lost, trying again";
  });
  source.addEventListener("part", (event) => {
    const part = JSON.parse(event.data);
    const element = document.getElementById(part.id);
    if (element) replace(element, part.html);
  });
  window.addEventListener("pagehide", () => source.close());
}
// "/" goes to the search field.
document.addEventListener("keydown", (event) => {
  const field = document.querySelector("input[type=search]");
  const typing = event.target.closest("input, textarea, select");
  if (event.key === "/" && field && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    field.focus();
  }
});
