"""The style and the script of a profile's page."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root { color-scheme: light dark; --text: #222; --soft: #777; --line: #ddd; --page: #fff;
  --c0: #2f6fb5; --c1: #d9822b; --c2: #3f9d57; --c3: #b5475f; --c4: #7f5fc0; --c5: #2b9a9a;
  --c6: #a08a1c; --c7: #8a8f98; --crest: #c9ccd1 }
@media (prefers-color-scheme: dark) {
  :root { --text: #ddd; --soft: #999; --line: #333; --page: #111; --c0: #6aa5e3; --c1: #e8a35b;
    --c2: #6cc285; --c3: #e07f95; --c4: #ab92e6; --c5: #5cc4c4; --c6: #cdb84d; --c7: #8d939d;
    --crest: #4a4e55 } }
body { font: 14px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page);
  margin: 2em auto; max-width: 76em; padding: 0 1em }
h1 { font-size: 1.5em; margin-bottom: 0 } h2 { font-size: 1.1em; margin: 2em 0 .2em }
.soft { color: var(--soft); margin: 0 0 .6em }
.tiles { display: flex; flex-wrap: wrap; gap: .6em }
.tiles div { border: 1px solid var(--line); border-radius: 6px; padding: .4em .9em;
  color: var(--soft) }
.tiles b { display: block; font-size: 1.35em; font-weight: 600; color: var(--text) }
button, input { font: inherit; padding: .1em .7em }
input { width: 24em; max-width: 100% }
#timeline { position: relative; border: 1px solid var(--line); border-radius: 6px }
canvas { display: block; width: 100%; height: 150px; cursor: grab }
#tip { position: absolute; top: 70px; max-width: 34em; padding: .4em .8em; pointer-events: none;
  color: var(--text); background: var(--page); border: 1px solid var(--line); border-radius: 6px;
  overflow-wrap: anywhere; white-space: pre-line; z-index: 1 }
.wide { overflow-x: auto }
table { border-collapse: collapse; width: 100% }
th { color: var(--soft); font-weight: 500; border-bottom: 1px solid var(--line) }
th, td { padding: .2em 1em .2em 0; text-align: left; vertical-align: baseline }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
#nodes td:nth-child(2) { white-space: nowrap }
#nodes td:first-child, #nodes td:last-child { min-width: 14em; overflow-wrap: anywhere }
.bar { width: 35% } .bar div { height: .8em; border-radius: 2px; min-width: 1px }
tr.sum td { border-top: 1px solid var(--line); font-weight: 600 }
td i { display: inline-block; width: .7em; height: .7em; border-radius: 2px; margin-right: .5em }
.c0 { background: var(--c0) } .c1 { background: var(--c1) } .c2 { background: var(--c2) }
.c3 { background: var(--c3) } .c4 { background: var(--c4) } .c5 { background: var(--c5) }
.c6 { background: var(--c6) } .c7 { background: var(--c7) } .crest { background: var(--crest) }
"""

SCRIPT: Final = """
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const told = document.getElementById("told");

// The trace, to Perfetto and to a file.
const perfetto = "https://ui.perfetto.dev";
document.getElementById("perfetto").onclick = () => {
  const page = window.open(perfetto);
  if (!page) { told.textContent = "The browser opened no window: save the trace instead."; return; }
  told.textContent = "Waiting for Perfetto...";
  const asking = setInterval(() => page.postMessage("PING", perfetto), 100);
  window.addEventListener("message", function hear(event) {
    if (event.source !== page || event.data !== "PONG") return;
    clearInterval(asking);
    window.removeEventListener("message", hear);
    const buffer = new TextEncoder().encode(JSON.stringify(data.trace)).buffer;
    page.postMessage({perfetto: {buffer, title: data.title}}, perfetto);
    told.textContent = "";
  });
};
document.getElementById("save").onclick = () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(data.trace)]));
  link.download = `${data.title}.trace.json`;
  link.click();
  URL.revokeObjectURL(link.href);
};

// The timeline of one run.
const canvas = document.querySelector("canvas"), tip = document.getElementById("tip");
const [start, whole] = data.run;
const events = data.trace.filter(event => event.cat === "Node"
  && event.ts >= start && event.ts < start + whole);
let length = 0;
const begins = new Map(events.map(event => [event, (length += event.dur) - event.dur]));
let from = 0, span = length, chosen = null;
const top_ = 34, tall = 64;
const time = us => us >= 1e6 ? `${(us / 1e6).toPrecision(3)} s`
  : us >= 1e3 ? `${(us / 1e3).toPrecision(3)} ms` : `${us.toPrecision(3)} \u00b5s`;
const look = name => getComputedStyle(document.documentElement).getPropertyValue(name);

function step() {  // between marks: 1, 2 or 5 of a power of ten
  const rough = span / Math.max(2, canvas.clientWidth / 120);
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map(n => n * power).find(size => size >= rough);
}
function draw() {
  const wide = canvas.clientWidth, high = canvas.clientHeight, dots = window.devicePixelRatio || 1;
  canvas.width = wide * dots;
  canvas.height = high * dots;
  const pen = canvas.getContext("2d");
  pen.scale(dots, dots);
  pen.font = "12px system-ui, sans-serif";
  const at = us => (us - from) / span * wide, mark = step();
  for (let us = Math.ceil(from / mark) * mark; us <= from + span; us += mark) {
    pen.fillStyle = look("--line");
    pen.fillRect(at(us), 0, 1, high);
    pen.fillStyle = look("--soft");
    pen.fillText(us ? time(us) : "0", at(us) + 5, 16);
  }
  for (const event of events) {
    const x = at(begins.get(event)), width = Math.max(1, event.dur / span * wide);
    if (x + width < 0 || x > wide) continue;
    pen.globalAlpha = chosen && chosen !== event ? .45 : 1;
    pen.fillStyle = look(`--c${data.colors[event.args.op_name]}`);
    pen.fillRect(x, top_, width > 3 ? width - 1 : width, tall);
    pen.globalAlpha = 1;
    if (width < 40) continue;
    pen.save();
    pen.beginPath();
    pen.rect(Math.max(x, 0), top_, Math.min(x + width, wide) - Math.max(x, 0) - 6, tall);
    pen.clip();
    pen.fillStyle = look("--page");
    pen.fillText(event.args.op_name, Math.max(x, 0) + 6, top_ + tall / 2 + 4);
    pen.restore();
  }
  pen.fillStyle = look("--soft");
  pen.fillText(`${events.length} nodes in ${time(length)}`, 6, high - 12);
}
function move(to, size) {
  span = Math.min(Math.max(size, length / 1e4), length);
  from = Math.min(Math.max(to, 0), length - span);
  draw();
}
canvas.addEventListener("wheel", event => {
  event.preventDefault();
  const under = event.offsetX / canvas.clientWidth, factor = event.deltaY > 0 ? 1.25 : .8;
  const size = Math.min(Math.max(span * factor, length / 1e4), length);
  move(from + under * (span - size), size);
}, {passive: false});
canvas.addEventListener("dblclick", () => move(0, length));
canvas.addEventListener("pointerdown", event => canvas.setPointerCapture(event.pointerId));
canvas.addEventListener("pointermove", event => {
  if (event.buttons) return move(from - event.movementX / canvas.clientWidth * span, span);
  const us = from + event.offsetX / canvas.clientWidth * span;
  const found = event.offsetY >= top_ && event.offsetY <= top_ + tall && events.find(other =>
    begins.get(other) <= us && us <= begins.get(other) + other.dur) || null;
  tip.hidden = !found;
  if (found !== chosen) { chosen = found; draw(); }
  if (!found) return;
  const shapes = list => list.map(one => Object.entries(one)
    .map(([kind, shape]) => `${kind}[${shape.join(", ")}]`).join()).join(", ");
  const {args} = found;
  tip.textContent = [found.name.replace(/_kernel_time$/, ""), `${args.op_name}, ${time(found.dur)}`,
    args.provider, args.kernel,
    `${shapes(args.input_type_shape)} \u2192 ${shapes(args.output_type_shape)}`].join("\\n");
  tip.style.left = `${Math.max(0, Math.min(event.offsetX + 12, canvas.clientWidth - 360))}px`;
  tip.style.top = `${top_ + tall + 8}px`;
});
canvas.addEventListener("pointerleave", () => { tip.hidden = true; chosen = null; draw(); });
window.addEventListener("resize", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
draw();

// The nodes.
const rows = [...document.querySelectorAll("#nodes tr")].slice(1);
document.getElementById("search").addEventListener("input", event => {
  const words = event.target.value.toLowerCase().split(/\\s+/).filter(Boolean);
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every(word => text.includes(word));
  }
});
"""
