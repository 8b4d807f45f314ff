// Views, filters, buttons and keys, and where the review stands.
let hideToast = 0;
function toast(text, bad = false) {
  const box = $("toast");
  box.textContent = text;
  box.className = bad ? "bad" : "";
  box.hidden = false;
  $("said").textContent = text;
  clearTimeout(hideToast);
  hideToast = setTimeout(() => { box.hidden = true; }, bad ? 8000 : 2500);
}

const views = {
  isOne: () => !$("one").hidden,

  show(single, push = true) {
    $("one").hidden = !single;
    $("grid").hidden = single;
    $("as-one").setAttribute("aria-pressed", single);
    $("as-grid").setAttribute("aria-pressed", !single);
    document.body.classList.toggle("single", single);
    // The back button of a phone leads from one example to the grid.
    if (push && single !== (location.hash === "#one")) {
      if (single) history.pushState(null, "", "#one");
      else history.replaceState(null, "", "#");
    }
    if (single) one.draw();
    else {
      grid.redraw();
      $("list").focus({ preventScroll: true });
    }
  },
  one: () => list.length && views.show(true),
  grid: () => views.show(false),

  go(place) {
    here = place;
    if (views.isOne()) one.draw();
    else grid.reveal();
    tellProgress();
  },

  // On to the next that is open; past the last of all, the view stays.
  advance() {
    const next = nextOpen(here + 1);
    if (next >= 0) views.go(next);
    else views.go(here);
  },

  decide: (action, label) => inTurn(async () => {
    if (!list.length) return;
    const index = list[here];
    await decide(index, action, label);
    $("said").textContent = `${words(index)}: ${verdict(index)}`;
    views.advance();
    if (suspects && reviewedSuspects === suspects) toast("Every suspected label is reviewed.");
  }),

  undo: () => inTurn(async () => {
    const index = await undo();
    if (index === null) return toast("There is nothing to undo.");
    toast(`Taken back: ${words(index)}`);
    const place = list.indexOf(index);
    if (place >= 0) views.go(place);
  }),

  async choose() {
    if (!list.length) return;
    const index = list[here];
    const label = await pick("The right label", {
      note: (c) => (c === points.suggested[index] ? "suggested" : c === points.given[index] ? "given" : ""),
    });
    if (label !== undefined) views.decide("label", label);
  },

  async jump() {
    const open = new Uint32Array(classes.length);
    for (let i = 0; i < total; i++) if (points.suspect[i] && !decided[i]) open[points.given[i]]++;
    const label = await pick("Go to a class (given label)", {
      first: "all classes", note: (c) => (open[c] ? `${count(open[c])} to review` : ""),
    });
    if (label === undefined) return;
    filters.given = label;
    selects.given.value = label ?? "";
    refilter();
  },
};

function refilter() {
  relist();
  here = Math.max(0, nextOpen(0));
  $("cards").querySelectorAll(".card").forEach((card) => card.remove());
  $("list").classList.toggle("nothing", list.length === 0);
  grid.redraw();
  one.draw();
  tellProgress();
}

function tellProgress() {
  const whole = suspects || total, done = suspects ? reviewedSuspects : reviewedOthers;
  $("reviewed").textContent = `${count(done)} of ${count(whole)} ${suspects ? "suspected labels" : "labels"} reviewed`
    + (suspects && reviewedOthers ? ` and ${count(reviewedOthers)} others` : "");
  $("done").style.width = `${(100 * done) / Math.max(1, whole)}%`;
  const coming = comingOpen(100);
  const { sum, low, high } = likelyWrong(coming);
  $("estimate").textContent = !coming.length ? `Take it away: ${data.export}`
    : coming.length === 1 ? "one is left"
    : `of the next ${coming.length} about ${sum} are likely wrong (${low}–${high})`;
  $("filtered").textContent = `${count(list.length)} shown`;
}

const counts = (key) => points[key].reduce((sums, c, i) => { sums[c] += points.suspect[i]; return sums; }, new Array(classes.length).fill(0));
const selects = {};
function between(label, key, least, most, step) {
  const bound = (k, value, name) => el("input", {
    type: "number", min: least, max: most, step, value, "aria-label": `${label} ${name}`, placeholder: k ? most ?? "any" : least,
    onchange: (event) => {
      const given = event.target.valueAsNumber;
      filters[key][k] = Number.isNaN(given) ? [0, Infinity][k] : given;
      refilter();
    },
  });
  return el("fieldset", {}, el("legend", {}, label), bound(0, "", "from"), el("span", {}, "–"), bound(1, "", "to"));
}
function field(name, node) {
  selects[name] = node.querySelector("select");
  return node;
}
$("tools").append(
  field("show", choice("show", [["suspected", `suspected labels (${count(suspects)})`], ["open", "suspected, not decided"], ["decided", "decided"], ["all", `all examples (${count(total)})`]], (v) => { filters.show = v; refilter(); })),
  field("given", classSelect("given label", null, (c) => { filters.given = c; refilter(); })),
  field("suggested", classSelect("suggested label", suspects ? counts("suggested") : null, (c) => { filters.suggested = c; refilter(); })),
  field("order", choice("order", [["surest", "surest wrong first"], ["unsure", "least sure first"], ["light", "lowest weight first"], ["heavy", "highest weight first"], ["given", "by given label"], ["suggested", "by suggested label"], ["set", "as in the set"]], (v) => { filters.order = v; refilter(); })),
  between("score", "score", 0, 1, 0.01),
  between("weight", "weight", 0, null, 0.05),
);

const button = (key, text, kind, onclick) => el("button", { class: kind, onclick, title: `key ${key}` }, text, el("kbd", {}, key));
$("actions").append(
  el("button", { class: "step", "aria-label": "previous", onclick: () => step(-1) }, "←"),
  button("a", "Accept", "accept", () => views.decide("accept")),
  button("k", "Keep", "keep", () => views.decide("keep")),
  button("l", "Other label", "other", () => views.choose()),
  button("x", "Unusable", "unusable", () => views.decide("unusable")),
  button("u", "Undo", "undo", () => views.undo()),
  el("button", { class: "step", "aria-label": "next", onclick: () => step(1) }, "→"),
);
$("as-grid").addEventListener("click", views.grid);
$("as-one").addEventListener("click", views.one);
$("keys").addEventListener("click", () => helper.showModal());
addEventListener("popstate", () => views.show(location.hash === "#one", false));
data.notes.forEach((text) => {
  const note = el("p", { class: "note" }, el("span", {}, text), el("button", { "aria-label": "Hide this note", onclick: () => note.remove() }, "×"));
  $("notes").append(note);
});

function step(by) {
  if (list.length) views.go((here + by + list.length) % list.length);
}

const COMMANDS = {
  a: () => views.decide("accept"), k: () => views.decide("keep"), x: () => views.decide("unusable"),
  l: views.choose, u: views.undo, g: views.jump,
  n: () => { const next = nextOpen(here + 1); if (next >= 0) views.go(next); },
  z: () => views.isOne() && one.fit(), "+": () => views.isOne() && one.scale(1), "-": () => views.isOne() && one.scale(-1),
  s: () => views.isOne() && one.smoothen(),
  "?": () => helper.showModal(),
  Escape: views.grid,
};
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const on = event.target;
  if (on.closest("input") || (on.closest("select") && event.key.length > 1)) {
    if (event.key === "Escape") on.blur();
    return;
  }
  if (on.closest("button, summary") && (event.key === "Enter" || event.key === " ")) return;
  if (on.closest("select") && event.key === " ") return; // other letters would only choose an option by its name
  const label = /^\d$/.test(event.key) && classes.length <= 10 ? Number(event.key) : -1;
  const move = views.isOne() ? { ArrowLeft: -1, ArrowRight: 1 }[event.key] : undefined;
  let run = COMMANDS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (label >= 0 && label < classes.length) run = () => views.decide("label", label);
  else if (move !== undefined) run = () => step(move);
  else if (!views.isOne()) {
    if (event.key === "Enter" || event.key === " ") run = views.one;
    else if (list.length && grid.move(event.key) !== null) run = () => views.go(grid.move(event.key));
  }
  if (!run) return;
  event.preventDefault();
  // A key that is held down moves, but must not decide on a hundred examples.
  if (!event.repeat || event.key.length > 1 || event.key === "n") run();
});

listeners.push(tellProgress);
if (!suspects) selects.show.value = filters.show = "all";
if (innerWidth < 640) $("filters").open = false;
receive(data.state);
refilter();
views.show(location.hash === "#one", false);
