"""The style and the script of a graph's page."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root { color-scheme: light dark; --line: #9aa3af; --soft: #f3f4f6; --ink: #111827; --back: #fff;
  --hit: #f5b301; }
@media (prefers-color-scheme: dark) {
  :root { --line: #5b6472; --soft: #1f2430; --ink: #e5e7eb; --back: #12151c; } }
* { box-sizing: border-box; }
body { margin: 0; font: 14px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--back);
  height: 100vh; display: flex; flex-direction: column; }
header { padding: 10px 18px; border-bottom: 1px solid var(--line); display: flex; gap: 6px 24px;
  flex-wrap: wrap; align-items: baseline; }
h1 { font-size: 18px; margin: 0; } h2 { font-size: 14px; margin: 18px 0 6px; } p { margin: 0; }
.legend span { margin-right: 14px; } .legend i { display: inline-block; width: 11px; height: 11px;
  border-radius: 3px; margin-right: 5px; }
main { flex: 1; display: flex; min-height: 0; }
.graph { flex: 1; display: flex; flex-direction: column; min-width: 0; }
.bar { padding: 8px 18px; display: flex; gap: 8px; align-items: center; }
.bar input { flex: 1; max-width: 420px; padding: 5px 9px; font: inherit; }
.bar button { font: inherit; min-width: 32px; } #found { min-width: 80px; opacity: .7; }
.hint { opacity: .7; padding: 0 18px; } #canvas { flex: 1; overflow: auto; padding: 8px 18px; }
aside { width: 400px; overflow: hidden auto; padding: 12px 16px; border-left: 1px solid var(--line);
  background: var(--soft); } aside .hint { padding: 0; }
svg { display: block; margin: auto; } svg path { fill: none; stroke: var(--line); }
svg text { fill: #fff; font: 12px ui-monospace, monospace; text-anchor: middle; }
svg g.node { cursor: pointer; } svg g.end rect { opacity: .75; }
svg text.shape { fill: var(--ink); font-size: 10px; text-anchor: start; paint-order: stroke;
  stroke: var(--back); stroke-width: 4px; }
svg.searching g { opacity: .18; } svg.searching path { opacity: .25; }
svg.searching g.hit { opacity: 1; } g.hit rect { stroke: var(--hit); stroke-width: 3; }
g.chosen rect { stroke: var(--ink); stroke-width: 3; }
#details dl { display: grid; grid-template-columns: 84px 1fr; gap: 3px 8px; margin: 0 0 10px; }
#details dt { opacity: .65; } #details dd { margin: 0; overflow-wrap: anywhere; }
details { border: 1px solid var(--line); border-radius: 5px; padding: 5px 9px; margin: 5px 0;
  background: var(--back); } details.idle { opacity: .6; } summary { cursor: pointer; }
summary em { opacity: .6; font-style: normal; }
pre { overflow: auto; font-size: 11px; margin: 6px 0; }
ul { padding-left: 18px; margin: 6px 0; } li.near { color: #b45309; }
table { border-collapse: collapse; width: 100%; }
th { text-align: left; font-weight: 500; opacity: .65; }
td, th { padding: 2px 8px 2px 0; vertical-align: top; }
@media (max-width: 900px) { body { height: auto; } main { flex-direction: column; }
  .graph { height: 65vh; flex: none; } .bar input { min-width: 0; }
  #found:empty { min-width: 0; }
  aside { width: auto; border-left: 0; border-top: 1px solid var(--line); } }
"""

SCRIPT: Final = """
"use strict";
const nodes = JSON.parse(document.getElementById("nodes").textContent);
const svg = document.querySelector("#canvas svg"), canvas = document.getElementById("canvas");
const search = document.getElementById("search"), found = document.getElementById("found");
const boxes = [...svg.querySelectorAll("g")];
const rowsOf = box => box.dataset.rows ? box.dataset.rows.split(",").map(Number) : [];
const texts = boxes.map(box => [box.dataset.text, ...rowsOf(box).flatMap(row => nodes[row]
  ? [wordsOf(nodes[row])] : [])].join(" ").toLowerCase());
const drawn = new Set(boxes.flatMap(rowsOf));
const others = nodes.filter((_, row) => !drawn.has(row)).map(node => wordsOf(node).toLowerCase());
let hits = [], at = -1, elsewhere = 0;

function wordsOf(node) {
  return [node.text.split("(")[0], node.name, node.provider, node.made_by].join(" ");
}

function show(box) {
  box.scrollIntoView({block: "center", inline: "center"});
}
function find() {
  const words = search.value.toLowerCase().split(/\\s+/).filter(Boolean);
  hits = words.length
    ? boxes.filter((_, i) => words.every(word => texts[i].includes(word))) : [];
  elsewhere = words.length
    ? others.filter(text => words.every(word => text.includes(word))).length : 0;
  boxes.forEach(box => box.classList.remove("hit"));
  hits.forEach(box => box.classList.add("hit"));
  svg.classList.toggle("searching", words.length > 0);
  at = hits.length ? 0 : -1;
  if (hits.length) show(hits[0]);
  tell(words.length);
}
function tell(any) {
  const undrawn = elsewhere ? `, ${elsewhere} not drawn` : "";
  found.textContent = !any ? "" : (hits.length ? `${at + 1} of ${hits.length}` : "none") + undrawn;
}
search.addEventListener("input", find);
search.addEventListener("keydown", event => {
  if (event.key !== "Enter" || !hits.length) return;
  at = (at + (event.shiftKey ? hits.length - 1 : 1)) % hits.length;
  show(hits[at]);
  tell(true);
});

function row(list, name, text) {
  if (text === null || text === undefined || text === "") return;
  const key = document.createElement("dt"), value = document.createElement("dd");
  key.textContent = name;
  value.textContent = text;
  list.append(key, value);
}
function choose(box) {
  boxes.forEach(other => other.classList.toggle("chosen", other === box));
  const place = document.getElementById("details");
  place.replaceChildren();
  for (const number of rowsOf(box).slice(0, 50)) {
    const node = nodes[number];
    if (!node) continue;
    const list = document.createElement("dl");
    row(list, "operator", `${node.operator}, version ${node.version}`);
    row(list, "name", node.name);
    row(list, "node", node.text);
    row(list, "makes", Object.values(node.types).join(", "));
    row(list, "provider", node.provider);
    row(list, "because", node.reasons);
    row(list, "made by", node.made_by);
    row(list, "stands for", node.origin);
    const joined = nodes.filter(other => other !== node && other.call !== null
      && other.call === node.call).map(other => other.operator);
    row(list, "one call with", joined.join(", "));
    place.append(list);
  }
}
boxes.filter(box => box.dataset.rows).forEach(box =>
  box.addEventListener("click", () => choose(box)));

const whole = Number(svg.dataset.width);
let width = whole;
function resize(to) {
  width = Math.min(Math.max(to, 200), whole * 4);
  svg.setAttribute("width", width);
}
document.getElementById("larger").onclick = () => resize(width * 1.25);
document.getElementById("smaller").onclick = () => resize(width / 1.25);
document.getElementById("fit").onclick = () => resize(canvas.clientWidth - 36);
if (whole > canvas.clientWidth * 3) resize(canvas.clientWidth * 3);
"""
