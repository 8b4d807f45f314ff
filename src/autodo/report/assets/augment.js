// What augmentation each class learned: a table of magnitudes, and strips of augmented images.
function drawMagnitudes(root) {
  const { operations, units, magnitude, probability, initial_magnitude, initial_probability } = data.augmentation;
  const few = 20;
  const initial = initial_magnitude.map((m) => m * initial_probability);
  const strength = (c, a) => (magnitude[c][a] * probability[c][a]) / initial[a];
  const present = classes.map((_, c) => c).filter((c) => magnitude[c][0] !== null);
  const moved = (c) => Math.max(...operations.map((_, a) => Math.abs(Math.log2(strength(c, a)))));
  // A doubling is the full colour; where all moved less, the largest move is.
  const reach = Math.max(0.05, Math.min(1, Math.max(...present.map(moved))));
  const table = el("table", { class: "heat" });
  const head = el("tr", {}, el("th"));
  for (const name of operations) head.append(el("th", { scope: "col" }, name));
  table.append(el("caption", { class: "sr" }, "Mean probability and magnitude of each operation by class"), el("thead", {}, head));
  const body = table.appendChild(el("tbody"));
  const began = el("tr", {}, el("th", { scope: "row" }, "at the start"));
  operations.forEach((_, a) => began.append(cell(initial_probability, initial_magnitude[a], a)));
  const draw = (limit) => {
    body.replaceChildren(began);
    const shown = data.augmentation.shared ? present.slice(0, 1) : present;
    for (const c of shown.slice(0, limit)) {
      const name = data.augmentation.shared ? "all classes" : classes[c];
      const row = el("tr", {}, el("th", { scope: "row", title: name }, name));
      operations.forEach((operation, a) => {
        const filled = cell(probability[c][a], magnitude[c][a], a);
        const change = Math.max(-1, Math.min(1, Math.log2(strength(c, a)) / reach));
        filled.style.background = `color-mix(in srgb, var(--${change > 0 ? "accent" : "warn"}) ${Math.round(45 * Math.abs(change))}%, var(--raised))`;
        filled.title = `${name}, ${operation}: ${percent(strength(c, a) - 1)} against the start`;
        row.append(filled);
      });
      body.append(row);
    }
  };
  draw(few);
  root.append(table);
  if (!data.augmentation.shared && present.length > few) {
    const more = el("button", { onclick: () => { draw(Infinity); more.remove(); } }, `Show all ${present.length} classes`);
    root.append(el("div", { class: "more" }, more));
  }

  function cell(p, m, a) {
    return el("td", {}, `${(100 * p).toFixed(0)}%`, el("small", {}, `±${+m.toPrecision(3)}${units[a]}`));
  }
}

function drawStrips() {
  for (const kind of ["class", "example"]) {
    const root = $(`${kind}-strips`);
    if (!root) continue;
    for (const strip of data.strips.filter((s) => s.kind === kind)) {
      const name = kind === "class" ? classes[strip.label] : strip.id;
      const short = name.length > 10 && kind === "example" ? `no. ${strip.index}` : name;
      const row = el("div", { class: "strip", role: "img", "aria-label": `${name}: an example and ${strip.images.length - 1} augmented views of it` },
        el("span", { title: name }, short));
      for (const source of strip.images) {
        const image = el("img", { src: source, alt: "", decoding: "async" });
        image.addEventListener("load", () => image.classList.toggle("exact", image.naturalWidth <= 64));
        row.append(image);
      }
      root.append(row);
    }
  }
}
