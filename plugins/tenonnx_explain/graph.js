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
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
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
