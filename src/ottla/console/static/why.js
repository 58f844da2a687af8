"use strict";
// A bar of the picture leads to the row of its decision; here that row is shown beside the picture.
const bars = [...document.querySelectorAll("svg#s a")];
const chosen = document.getElementById("chosen");
document.getElementById("w").after(chosen); // below the picture, which stays where it is then
function focusOnly(bar) {
  for (const other of bars) other.setAttribute("tabindex", other === bar ? "0" : "-1");
}
function choose(bar) {
  const row = document.getElementById(bar.getAttribute("href").slice(1));
  if (!row) return;
  const heads = row.closest("table").querySelectorAll("thead th");
  const said = document.createElement("p");
  said.textContent = bar.querySelector("title").textContent;
  const list = document.createElement("dl");
  list.className = "pairs";
  [...row.cells].forEach((cell, i) => {
    const pair = document.createElement("div");
    const head = document.createElement("dt");
    const body = document.createElement("dd");
    head.textContent = heads[i].textContent;
    body.textContent = cell.textContent;
    pair.append(head, body);
    list.append(pair);
  });
  chosen.replaceChildren(said, list);
  chosen.hidden = false;
  for (const other of bars) other.removeAttribute("aria-current");
  for (const other of document.querySelectorAll("tr.chosen")) other.classList.remove("chosen");
  bar.setAttribute("aria-current", "true");
  row.classList.add("chosen");
  focusOnly(bar);
}
let from = null;
for (const bar of bars) {
  bar.addEventListener("pointerdown", (event) => { from = event.clientX; });
  bar.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const moved = event.detail > 0 && from !== null && Math.abs(event.clientX - from) > 4;
    if (!moved) choose(bar); // else the picture was moved
  });
  bar.addEventListener("dragstart", (event) => event.preventDefault());
  bar.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const ends = { Home: 0, End: bars.length - 1 };
    const at = step ? bars.indexOf(bar) + step : ends[event.key];
    if (at === undefined || !bars[at]) return;
    event.preventDefault();
    focusOnly(bars[at]);
    bars[at].focus();
  });
}
if (bars.length) focusOnly(bars[bars.length - 1]);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") chosen.hidden = true;
});
