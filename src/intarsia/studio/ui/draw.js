// A square pad: the pointer draws, and so do the arrow keys with Shift. Once the pointer is lifted
// the strokes are drawn again, as large as they can be, and sent as grey bytes: a small drawing has
// then lines as thin, relative to its size, as a large one.
const pad = element.querySelector("canvas");
const ink = pad.getContext("2d", { willReadFrequently: true });
const small = document.createElement("canvas");
small.width = small.height = 112;
const edge = 6;
let strokes = [];
let at = null;
let pen = [pad.width / 2, pad.height / 2];

function clear() {
  strokes = [];
  ink.fillStyle = "#000";
  ink.fillRect(0, 0, pad.width, pad.height);
  Object.assign(ink, { strokeStyle: "#fff", lineCap: "round", lineJoin: "round" });
  ink.lineWidth = Number(pad.dataset.pen);
}

function line(from, to) {
  strokes.push([from, to]);
  ink.beginPath();
  ink.moveTo(...from);
  ink.lineTo(...to);
  ink.stroke();
}

function send() {
  const view = small.getContext("2d", { willReadFrequently: true });
  const room = small.width - 2 * edge;
  const pen = room * Number(pad.dataset.fraction);
  const ends = strokes.flat();
  const low = [0, 1].map((i) => Math.min(...ends.map((end) => end[i])));
  const sides = [0, 1].map((i) => Math.max(...ends.map((end) => end[i])) - low[i]);
  const scale = (room - pen) / Math.max(...sides, Number(pad.dataset.pen)); // a dot stays a dot
  view.fillStyle = "#000";
  view.fillRect(0, 0, small.width, small.height);
  Object.assign(view, { strokeStyle: "#fff", lineCap: "round", lineJoin: "round", lineWidth: pen });
  view.beginPath();
  for (const [from, to] of strokes) {
    view.moveTo(...from.map((v, i) => edge + pen / 2 + (v - low[i]) * scale));
    view.lineTo(...to.map((v, i) => edge + pen / 2 + (v - low[i]) * scale));
  }
  view.stroke();
  const pixels = view.getImageData(0, 0, small.width, small.height).data;
  let bytes = "";
  for (let i = 0; i < pixels.length; i += 4) bytes += String.fromCharCode(pixels[i]);
  props.value = btoa(bytes);
}

function place(event) {
  const box = pad.getBoundingClientRect();
  return [
    ((event.clientX - box.left) / box.width) * pad.width,
    ((event.clientY - box.top) / box.height) * pad.height,
  ];
}

pad.addEventListener("pointerdown", (event) => {
  pad.setPointerCapture(event.pointerId);
  at = place(event);
  line(at, at);
});
pad.addEventListener("pointermove", (event) => {
  if (!at) return;
  const to = place(event);
  line(at, to);
  at = to;
});
for (const end of ["pointerup", "pointercancel"]) {
  pad.addEventListener(end, () => {
    if (at) send();
    at = null;
  });
}
pad.addEventListener("keydown", (event) => {
  const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const step = steps[event.key];
  if (!step) return;
  event.preventDefault();
  const to = pen.map((v, i) => Math.min(pad.width, Math.max(0, v + (step[i] * pad.width) / 20)));
  if (event.shiftKey) line(pen, to);
  pen = to;
});
pad.addEventListener("keyup", (event) => {
  if (event.key === "Shift") send();
});
element.querySelector("button").addEventListener("click", () => {
  clear();
  props.value = "";
});
// A test sample was chosen instead.
watch("value", () => {
  if (!props.value) clear();
});
clear();
