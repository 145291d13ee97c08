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
  : us >= 1e3 ? `${(us / 1e3).toPrecision(3)} ms` : `${us.toPrecision(3)} µs`;
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
    `${shapes(args.input_type_shape)} → ${shapes(args.output_type_shape)}`].join("\n");
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
  const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every(word => text.includes(word));
  }
});
