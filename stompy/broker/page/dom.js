// Elements, numbers and charts. What peers sent is only ever text: nothing here, or elsewhere, writes markup.

const $ = (id) => document.getElementById(id);

// el("p", { class: "quiet", onclick: run }, "text", child): text becomes a text node.
function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "value") made.value = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined).map((child) =>
    child instanceof Node ? child : String(child)));
  return made;
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const grouped = new Intl.NumberFormat("en-US");

function short(number) {
  if (number < 10000) return grouped.format(Math.round(number));
  const [unit, size] = number < 999500 ? ["k", 1e3] : number < 999.5e6 ? ["M", 1e6] : ["G", 1e9];
  const scaled = number / size;
  return scaled.toFixed(scaled < 100 ? 1 : 0) + unit;
}

const rate = (number) => (number > 0 && number < 9.95 ? number.toFixed(1) : short(number));
const bytes = (size) => (size < 1024 ? `${size} B` : size < 1048576 ? `${(size / 1024).toFixed(1)} KiB` : `${(size / 1048576).toFixed(1)} MiB`);
const plural = (count, word) => `${grouped.format(count)} ${word}${count === 1 ? "" : "s"}`;
const seconds = (value) => (value < 10 ? `${value.toFixed(1)} s` : value < 120 ? `${Math.round(value)} s` : `${Math.round(value / 60)} min`);
const clock = (moment) => new Date(moment * 1000).toTimeString().slice(0, 8);

const narrow = matchMedia("(max-width: 820px)");

// What the browser remembers, if it is allowed to.
function remembered(name, value) {
  try {
    if (value !== undefined) localStorage.setItem(name, value);
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

const HISTORY = 120;

// The latest numbers of something, one each second.
class History {
  constructor() {
    this.values = [];
  }

  add(value) {
    this.values.push(value);
    if (this.values.length > HISTORY) this.values.shift();
  }
}

let colours = {};

function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["in", "out", "line", "quiet"]) colours[name] = style.getPropertyValue(`--${name}`).trim();
}

// Draw lines over the same scale; `lines` are a history, a colour's name, and whether to fill below.
function draw(canvas, lines, { labels = false, count = HISTORY } = {}) {
  const scale = window.devicePixelRatio || 1;
  const width = Math.round(canvas.clientWidth * scale);
  const height = Math.round(canvas.clientHeight * scale);
  if (!width || !height) return;
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, width, height);
  const shown = lines.map(([history, name, fill]) => [history.values.slice(-count), colours[name], fill]);
  const most = Math.max(1, ...shown.flatMap(([values]) => values));
  const top = labels ? 16 * scale : 3 * scale;
  const y = (value) => height - 2 * scale - (value / most) * (height - top - 2 * scale);
  if (labels) {
    context.strokeStyle = colours.line;
    context.fillStyle = colours.quiet;
    context.font = `${11 * scale}px system-ui, sans-serif`;
    context.lineWidth = scale;
    for (const value of [0, most]) {
      context.beginPath();
      context.moveTo(0, y(value));
      context.lineTo(width, y(value));
      context.stroke();
    }
    context.fillText(`${rate(most)}/s`, 2 * scale, 11 * scale);
    context.textAlign = "right";
    context.fillText("last 2 minutes", width - 2 * scale, 11 * scale);
    context.textAlign = "left";
  }
  const step = width / (count - 1);
  for (const [values, colour, fill] of shown) {
    if (values.length < 2) continue;
    context.strokeStyle = colour;
    context.lineWidth = 1.5 * scale;
    context.lineJoin = "round";
    context.beginPath();
    values.forEach((value, place) => {
      const x = width - (values.length - 1 - place) * step;
      if (place) context.lineTo(x, y(value));
      else context.moveTo(x, y(value));
    });
    context.stroke();
    if (!fill) continue;
    context.globalAlpha = 0.12;
    context.fillStyle = colour;
    context.lineTo(width, height);
    context.lineTo(width - (values.length - 1) * step, height);
    context.fill();
    context.globalAlpha = 1;
  }
}

let noteTimer = 0;

// Say what happened, for a moment.
function note(text, bad = false) {
  const line = $("note");
  setText(line, text);
  line.classList.toggle("bad", bad);
  line.hidden = false;
  clearTimeout(noteTimer);
  noteTimer = setTimeout(() => (line.hidden = true), bad ? 8000 : 4000);
}

// Run something that may fail; say what it returns, or why it failed.
async function attempt(work) {
  try {
    const said = await work();
    if (said) note(said);
  } catch (error) {
    note(error.message, true);
  }
}

// A button that asks once more before it does what cannot be undone.
function dangerous(label, question, work) {
  let timer = 0;
  const calm = () => {
    clearTimeout(timer);
    timer = 0;
    button.classList.remove("sure");
    setText(button, label);
  };
  const button = el("button", { class: "danger", type: "button", onclick: () => {
    if (timer) {
      calm();
      attempt(work);
    } else {
      button.classList.add("sure");
      setText(button, question());
      timer = setTimeout(calm, 4000);
    }
  } }, label);
  return button;
}

const action = (label, work, kind = "") => el("button", { class: kind, type: "button", onclick: () => attempt(work) }, label);

// Tabs in a row; `chosen` is called with the name of the one that is chosen.
function tabs(box, names, chosen) {
  const buttons = new Map();
  const choose = (name, focus = false) => {
    for (const [other, button] of buttons) {
      button.setAttribute("aria-selected", String(other === name));
      button.tabIndex = other === name ? 0 : -1;
    }
    if (focus) buttons.get(name).focus();
    chosen(name);
  };
  for (const name of names) {
    buttons.set(name, el("button", { role: "tab", type: "button", onclick: () => choose(name), onkeydown: (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      choose(names[(names.indexOf(name) + step + names.length) % names.length], true);
    } }, name));
  }
  box.replaceChildren(...buttons.values());
  return { choose, buttons };
}
