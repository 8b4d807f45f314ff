// Small things that every part of the page uses. Text from the run is only ever set as text.
const data = JSON.parse(document.getElementById("data").textContent);
const classes = data.classes;
const $ = (id) => document.getElementById(id);

function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.001 ? 2 : 1)}%`;
const count = (n) => n.toLocaleString("en");
const number = (x) => (Math.abs(x) >= 100 ? x.toFixed(0) : Math.abs(x) >= 10 ? x.toFixed(1) : x.toFixed(2));

function unpack(text, Kind) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Kind(bytes.buffer);
}

// Colours of classes are as far apart as their number allows, at the lightness of the theme.
const redraws = [];
let theme = {};
function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(`--${name}`).trim();
  theme = Object.fromEntries(
    ["text", "quiet", "line", "grid", "surface", "raised", "accent", "warn", "lightness", "chroma"].map((n) => [n, value(n)]),
  );
}
readTheme();
// Printing is a theme too: what was drawn on dark is drawn anew on white.
for (const media of ["(prefers-color-scheme: dark)", "print"]) {
  matchMedia(media).addEventListener("change", () => {
    readTheme();
    redraws.forEach((redraw) => redraw());
  });
}
const colour = (c) => {
  const hue = classes.length <= 12 ? (360 * c) / classes.length + 20 : (137.508 * c) % 360;
  const step = classes.length <= 12 ? (c % 2) * 0.07 : (c % 3) * 0.05;
  return `oklch(${Number(theme.lightness) + step} ${theme.chroma} ${hue})`;
};

// Any colour of CSS as [red, green, blue] of 0 to 255.
const probe = fill(document.createElement("canvas"), { width: 1, height: 1 }, []).getContext("2d", { willReadFrequently: true });
function rgb(text) {
  probe.fillStyle = text;
  probe.fillRect(0, 0, 1, 1);
  return probe.getImageData(0, 0, 1, 1).data.slice(0, 3);
}

const tip = document.body.appendChild(el("div", { class: "tip", hidden: "" }));
function showTip(x, y, ...content) {
  tip.replaceChildren(...content);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = x + 14 + box.width > innerWidth ? x - 14 - box.width : x + 14;
  const top = y + 14 + box.height > innerHeight ? y - 14 - box.height : y + 14;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, top)}px`;
}
const hideTip = () => { tip.hidden = true; };
addEventListener("scroll", hideTip, { passive: true });
addEventListener("keydown", (event) => event.key === "Escape" && hideTip());

const lines = (...texts) => texts.map((text) => el("div", {}, text));

// Calls draw(width) now and whenever the width of the node changes.
function onWidth(node, draw) {
  let width = 0;
  const look = () => {
    const now = Math.floor(node.getBoundingClientRect().width);
    if (now > 0 && now !== width) draw((width = now));
  };
  new ResizeObserver(look).observe(node);
  look();
}

// A labelled select of classes; counts, where given, leave out the classes that have none.
function classSelect(label, counts, onchange) {
  const select = el("select", { onchange: () => onchange(select.value === "" ? null : Number(select.value)) });
  select.append(el("option", { value: "" }, "all"));
  classes.forEach((name, c) => {
    if (counts === null || counts[c]) {
      select.append(el("option", { value: c }, counts ? `${name} (${count(counts[c])})` : name));
    }
  });
  return el("label", {}, label, select);
}

// options: [value, text] pairs, the first of which is chosen.
function choice(label, options, onchange) {
  const select = el("select", { onchange: () => onchange(select.value) });
  for (const [value, text] of options) select.append(el("option", { value }, text));
  return el("label", {}, label, select);
}

// Which colour is which class, where the classes are few enough to be told apart.
function legend() {
  const list = el("div", { class: "legend" });
  const draw = () => list.replaceChildren(...classes.map((name, c) => {
    const mark = el("i");
    mark.style.background = colour(c);
    return el("span", {}, mark, name);
  }));
  if (classes.length <= 20) {
    draw();
    redraws.push(draw);
  }
  return list;
}

// A button that is on or off.
function toggle(text, on, onchange) {
  const button = el("button", {
    "aria-pressed": on,
    onclick: () => {
      on = !on;
      button.setAttribute("aria-pressed", on);
      onchange(on);
    },
  }, text);
  return button;
}

// 1, 2 and 5 times powers of ten; powers of ten alone where that is enough.
function logTicks(low, high) {
  const powers = [];
  for (let p = Math.floor(Math.log10(low)); p <= Math.log10(high); p++) powers.push(10 ** p);
  const wanted = powers.length > 4 ? powers : powers.flatMap((p) => [p, 2 * p, 5 * p]);
  return wanted.filter((v) => v >= low && v <= high);
}

function ticks(low, high, wanted) {
  const raw = (high - low) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
  const found = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-9; v += step) found.push(v);
  return found;
}
