// Galleries of examples, and the dialog that shows one of them large.
function picture(item) {
  const frame = el("span", { class: "picture" });
  const source = data.images[item.index];
  if (!source) {
    frame.append("no picture");
    return frame;
  }
  const image = el("img", { src: source, alt: "", decoding: "async" });
  const sharpen = () => image.classList.toggle("exact", image.naturalWidth <= 64);
  image.addEventListener("load", sharpen);
  if (image.complete) sharpen();
  frame.append(image);
  return frame;
}

function labels(item) {
  const same = item.given === item.suggested;
  return same
    ? el("span", { class: "labels" }, classes[item.given])
    : el("span", { class: "labels" }, el("span", { class: "given" }, classes[item.given]), " → ", el("span", { class: "suggested" }, classes[item.suggested]));
}

const words = (item) => item.given === item.suggested
  ? `labelled ${classes[item.given]}`
  : `labelled ${classes[item.given]}, looks like ${classes[item.suggested]}`;

// root: where; items: surest first; note: the small print of a card; page: cards shown at first.
function gallery(root, items, { note, page, filters = false }) {
  const cards = el("div", { class: "cards" });
  const told = el("span", { class: "quiet", role: "status" });
  const more = el("button", { onclick: () => { shown += page; draw(); } }, "Show more");
  let given = null, suggested = null, sort = "first", shown = page;
  const sorts = {
    first: () => 0,
    "low weight": (a, b) => a.weight - b.weight,
    "high weight": (a, b) => b.weight - a.weight,
    class: (a, b) => a.given - b.given || a.score - b.score,
  };
  if (filters) {
    const counts = (key) => items.reduce((sums, item) => { sums[item[key]]++; return sums; }, new Array(classes.length).fill(0));
    root.append(el("div", { class: "tools" },
      classSelect("given label", counts("given"), (c) => { given = c; shown = page; draw(); }),
      classSelect("suggested label", counts("suggested"), (c) => { suggested = c; shown = page; draw(); }),
      choice("order", [["first", "surest first"], ["class", "by class"], ["low weight", "lowest weight first"], ["high weight", "highest weight first"]], (v) => { sort = v; draw(); })));
  }
  root.append(cards, el("div", { class: "more" }, more, told));
  draw();

  function draw() {
    const found = items
      .filter((item) => (given === null || item.given === given) && (suggested === null || item.suggested === suggested))
      .map((item, k) => [item, k])
      .sort(([a, k], [b, l]) => sorts[sort](a, b) || k - l)
      .map(([item]) => item);
    cards.replaceChildren(...found.slice(0, shown).map((item, k) =>
      el("button", { class: "card", "aria-label": `${words(item)}, ${note(item)}`, onclick: () => enlarge(found, k) },
        picture(item), labels(item), el("small", {}, note(item)))));
    more.hidden = found.length <= shown;
    told.textContent = found.length ? `${Math.min(shown, found.length)} of ${found.length}` : "None is left by these filters.";
  }
}

const dialog = document.body.appendChild(el("dialog", { "aria-label": "One example" }));
dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());

function enlarge(items, k) {
  const show = (to) => {
    k = (to + items.length) % items.length;
    const item = items[k];
    const held = [...dialog.querySelectorAll("button")].indexOf(document.activeElement);
    const fact = (name, value) => [el("dt", {}, name), el("dd", { class: "number" }, value)];
    dialog.replaceChildren(el("div", { class: "detail" }, picture(item),
      el("div", { class: "side" },
        el("h3", {}, labels(item)),
        el("dl", {},
          ...fact("given", classes[item.given]), ...fact("suggested", classes[item.suggested]),
          ...fact("label score", item.score.toFixed(3)), ...fact("weight", item.weight.toFixed(3)),
          ...fact("file", item.id), ...fact("index", `${item.index}`)),
        el("p", { class: "quiet", role: "status" }, `${k + 1} of ${items.length}: ${words(item)}`),
        el("div", { class: "group" },
          el("button", { onclick: () => show(k - 1) }, "← previous"),
          el("button", { onclick: () => show(k + 1) }, "next →"),
          el("button", { onclick: () => dialog.close() }, "close")))));
    // The buttons are new: without a focus inside, the keys would go elsewhere.
    if (dialog.open) dialog.querySelectorAll("button")[Math.max(0, held)].focus();
  };
  show(k);
  dialog.onkeydown = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) { event.preventDefault(); show(k + step); }
  };
  dialog.showModal();
}
