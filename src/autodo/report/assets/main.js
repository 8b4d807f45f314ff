// The sections, from top to bottom.
const narrow = innerWidth < 640;
if ($("suspicious")) {
  gallery($("suspicious"), data.gallery.suspicious, { page: narrow ? 18 : 28, filters: true, note: (item) => `score ${item.score.toFixed(3)}` });
}
drawCurves($("curves-plots"));
if (data.confusion) drawConfusions($("confusion-plots"));
if (data.histogram) drawHistograms($("histograms"));
for (const name of ["raised", "muted"]) {
  if ($(name)) gallery($(name), data.gallery[name], { page: narrow ? 9 : 12, note: (item) => `weight ${item.weight.toFixed(2)}` });
}
if (data.augmentation) {
  drawMagnitudes($("magnitudes"));
  drawStrips();
}
if (data.map) drawMap($("map-plot"));
drawPoints($("points-plot"));
sortable(document.querySelector("table.classes"));
$("all-classes")?.addEventListener("click", (event) => {
  document.querySelector("table.classes").classList.remove("limited");
  event.target.remove();
});
followSections();

function drawMap(root) {
  const map = data.map;
  const of = unpack(map.set, Uint8Array), index = unpack(map.index, Uint32Array);
  const label = unpack(map.label, Uint16Array), predicted = unpack(map.predicted, Uint16Array);
  const suspect = unpack(map.suspect, Uint8Array);
  const total = of.length;
  const x = Float32Array.from(unpack(map.x, Uint16Array), (v) => v / 65535);
  const y = Float32Array.from(unpack(map.y, Uint16Array), (v) => v / 65535);
  const train = map.sets.indexOf("train");
  const cross = Uint8Array.from(of, (s, i) => s !== train && label[i] !== predicted[i]);
  let sprite = null;
  if (map.sprite) {
    sprite = new Image();
    sprite.src = map.sprite;
  }
  const tile = el("canvas", { width: 96, height: 96 });
  const counts = new Array(classes.length).fill(0);
  label.forEach((c) => counts[c]++);
  let chosen = null, set = "all", only = false;
  const told = el("span", { class: "quiet", role: "status" });
  const sets = [["all", "all sets"], ...map.sets.map((name, s) => [s, name])];
  root.append(el("div", { class: "tools" },
    classSelect("class", counts, (c) => { chosen = c; update(); }),
    choice("set", sets, (v) => { set = v; update(); }),
    toggle("only marked", false, (on) => { only = on; update(); }), told));
  const plot = scatter(root, {
    x, y, group: label, ring: suspect, cross, axes: null,
    label: `t-SNE map of ${count(total)} images.`,
    describe: (i) => {
      const said = lines(`${map.sets[of[i]]} image ${index[i]}`, `label: ${classes[label[i]]}`, `network: ${classes[predicted[i]]}`);
      if (suspect[i]) said.push(el("b", {}, "label looks wrong"));
      if (!sprite || !sprite.complete || !sprite.naturalWidth) return said;
      const side = sprite.naturalWidth / map.columns;
      const context = tile.getContext("2d");
      context.imageSmoothingEnabled = false;
      context.clearRect(0, 0, 96, 96);
      context.drawImage(sprite, (i % map.columns) * side, Math.floor(i / map.columns) * side, side, side, 0, 0, 96, 96);
      return [tile, ...said];
    },
  });
  root.append(legend());
  update();

  function update() {
    const found = plot.select((i) => (chosen === null || label[i] === chosen) && (set === "all" || of[i] === Number(set)) && (!only || suspect[i] || cross[i]));
    told.textContent = `${count(found)} of ${count(total)} shown`;
  }
}

function drawPoints(root) {
  const points = data.points;
  const given = unpack(points.given, Uint16Array), suggested = unpack(points.suggested, Uint16Array);
  const index = unpack(points.index, Uint32Array);
  const x = Float32Array.from(unpack(points.score, Uint16Array), (v) => v / 65535);
  const y = Float32Array.from(unpack(points.weight, Uint16Array), (v) => v / 65535);
  const [low, high] = points.range;
  const ring = Uint8Array.from(given, (c, i) => c !== suggested[i]);
  const counts = new Array(classes.length).fill(0);
  given.forEach((c) => counts[c]++);
  const place = (log) => (log - low) / (high - low);
  const weightTicks = () => (high - low < 2 ? ticks(2 ** low, 2 ** high, 6) : ticks(low, high, 6).map((v) => 2 ** v));
  let chosen = null, to = null, only = false;
  const told = el("span", { class: "quiet", role: "status" });
  root.append(el("div", { class: "tools" },
    classSelect("given label", counts, (c) => { chosen = c; update(); }),
    classSelect("suggested label", null, (c) => { to = c; update(); }),
    toggle("only suspected", false, (on) => { only = on; update(); }), told));
  const plot = scatter(root, {
    x, y, group: given, ring, cross: new Uint8Array(given.length),
    label: `Label score against weight of ${count(given.length)} training images.`,
    axes: {
      x: [0, 0.2, 0.4, 0.6, 0.8, 1].map((v) => [v, `${v}`]),
      y: weightTicks().map((w) => [place(Math.log2(w)), `${+w.toPrecision(3)}`]),
      names: ["learned probability of the given label", "weight"],
    },
    describe: (i) => lines(
      points.ids ? points.ids[i] : `index ${index[i]}`,
      given[i] === suggested[i] ? classes[given[i]] : `${classes[given[i]]} → ${classes[suggested[i]]}`,
      `score ${x[i].toFixed(3)}, weight ${(2 ** (low + y[i] * (high - low))).toFixed(2)}`),
  });
  root.append(legend());
  update();

  function update() {
    const found = plot.select((i) => (chosen === null || given[i] === chosen) && (to === null || suggested[i] === to) && (!only || ring[i]));
    told.textContent = `${count(found)} of ${count(points.total)} shown`;
  }
}

function sortable(table) {
  const heads = [...table.querySelectorAll("thead th")];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") !== (column ? "descending" : "ascending") ? (column ? -1 : 1) : (column ? 1 : -1);
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up > 0 ? "ascending" : "descending");
    const value = (row) => Number(row.children[column].dataset.value);
    const body = table.tBodies[0];
    body.append(...[...body.rows].sort((a, b) => up * (value(a) - value(b))));
  }));
}

function followSections() {
  const links = new Map([...document.querySelectorAll("nav.sections a")].map((a) => [a.hash.slice(1), a]));
  const seen = new Set();
  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) seen[entry.isIntersecting ? "add" : "delete"](entry.target.id);
    const first = [...links.keys()].find((id) => seen.has(id));
    links.forEach((a, id) => (id === first ? a.setAttribute("aria-current", "true") : a.removeAttribute("aria-current")));
    const list = document.querySelector("nav.sections ul");
    if (first && list.scrollWidth > list.clientWidth) list.scrollTo({ left: links.get(first).offsetLeft - 60 });
  }, { rootMargin: "-20% 0px -70% 0px" });
  links.forEach((_, id) => observer.observe($(id)));
}
