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
  const stop = document.querySelector("[data-stop]"); // there for what ends by itself: a search
  const source = new EventSource(live);
  const end = (text) => {
    source.close();
    state.textContent = text;
    if (!stop) return;
    stop.hidden = true;
    for (const part of document.querySelectorAll("[data-stopped]")) part.hidden = false;
  };
  source.addEventListener("open", () => {
    state.textContent = "· live";
    if (stop) stop.hidden = false;
  });
  source.addEventListener("error", () => {
    if (stop || source.readyState === EventSource.CLOSED) end("· updates stopped: reload the page");
    else state.textContent = "· connection lost, reconnecting";
  });
  source.addEventListener("part", (event) => {
    const part = JSON.parse(event.data);
    const element = document.getElementById(part.id);
    if (element) replace(element, part.html);
  });
  source.addEventListener("more", (event) => {
    const part = JSON.parse(event.data);
    document.getElementById(part.id)?.insertAdjacentHTML("beforeend", part.html); // escaped, too
  });
  source.addEventListener("end", () => end(""));
  if (stop) stop.addEventListener("click", () => {
    end("· stopped");
    document.querySelector("[data-stopped] a")?.focus({ preventScroll: true });
  });
  window.addEventListener("pagehide", () => end(""));
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
