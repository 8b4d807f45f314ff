// One example, large, beside the trusted ones that are most like it.
const one = (() => {
  const root = $("one");
  const stage = el("div", { class: "stage" });
  const side = el("div", { class: "side" });
  const zoomed = el("span", { class: "number" }, "1×");
  const controls = el("div", { class: "zoom" },
    el("button", { "aria-label": "smaller", onclick: () => scale(-1) }, "−"), zoomed,
    el("button", { "aria-label": "larger", onclick: () => scale(1) }, "+"));
  let smooth = false;
  const smoother = toggle("smooth", smooth, (on) => {
    smooth = on;
    stage.querySelector("img")?.classList.toggle("smooth", on);
  });
  smoother.title = "key s";
  controls.prepend(smoother);
  root.append(el("div", { class: "look" }, stage, controls), side);
  const STEPS = [1, 1.5, 2, 3, 4, 6, 8, 12];
  let zoom = 0, x = 0, y = 0, shownIndex = -1;
  const facts = new Map(); // index -> what the server tells of it

  function tell(index) {
    if (!facts.has(index)) {
      if (facts.size > 500) facts.clear();
      facts.set(index, ask(`item/${index}`).catch((error) => { facts.delete(index); throw error; }));
    }
    return facts.get(index);
  }

  function place() {
    const image = stage.querySelector("img");
    const far = (STEPS[zoom] - 1) / 2;
    x = Math.min(far, Math.max(-far, x));
    y = Math.min(far, Math.max(-far, y));
    if (image) image.style.transform = `translate(${100 * x}%, ${100 * y}%) scale(${STEPS[zoom]})`;
    zoomed.textContent = `${STEPS[zoom]}×`;
    stage.classList.toggle("close", zoom > 0);
  }

  // The point of the picture under (px, py), from -1/2 to 1/2 of the stage, stays where it is.
  function scale(step, px = 0, py = 0) {
    const before = STEPS[zoom];
    zoom = Math.min(STEPS.length - 1, Math.max(0, zoom + step));
    const grown = STEPS[zoom] / before;
    x = px - (px - x) * grown;
    y = py - (py - y) * grown;
    place();
  }

  const at = (event) => {
    const box = stage.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width - 0.5, (event.clientY - box.top) / box.height - 0.5];
  };
  stage.addEventListener("wheel", (event) => {
    event.preventDefault();
    scale(event.deltaY < 0 ? 1 : -1, ...at(event));
  }, { passive: false });
  stage.addEventListener("dblclick", (event) => (zoom ? scale(-STEPS.length) : scale(4, ...at(event))));
  let held = null;
  stage.addEventListener("pointerdown", (event) => {
    if (!zoom) return;
    held = at(event);
    stage.setPointerCapture(event.pointerId);
  });
  stage.addEventListener("pointermove", (event) => {
    if (!held) return;
    const now = at(event);
    x += now[0] - held[0];
    y += now[1] - held[1];
    held = now;
    place();
  });
  for (const end of ["pointerup", "pointercancel"]) stage.addEventListener(end, () => { held = null; });

  function draw() {
    if (root.hidden) return;
    if (!list.length) {
      shownIndex = -1;
      stage.replaceChildren();
      side.replaceChildren(el("p", { class: "empty" }, "No example is left by these filters."));
      return;
    }
    const index = list[here];
    if (index === shownIndex) return update(index);
    shownIndex = index;
    zoom = x = y = 0;
    stage.replaceChildren(load(picture("train", index, "large", `The example, ${words(index)}`)));
    const image = stage.querySelector("img");
    image?.addEventListener("load", () => {
      // Pixels as large as bricks hide what they show.
      image.style.maxWidth = `${40 * image.naturalWidth}px`;
      image.style.maxHeight = `${40 * image.naturalHeight}px`;
      smoother.hidden = !image.classList.contains("exact");
    });
    image?.classList.toggle("smooth", smooth);
    place();
    side.scrollTop = 0;
    const fact = (name, value) => [el("dt", {}, name), el("dd", { class: "number" }, value)];
    const network = el("dd", { class: "number" }, "…"), file = el("dd", { class: "mono" }, "…");
    const similar = el("div", { class: "similar" });
    side.replaceChildren(
      el("div", { class: "head" }, el("h2", {}, labels(index)), el("span", { class: "verdict" }), el("span", { class: "where quiet number" })),
      ...(classes.length <= 10 ? [chips(index)] : []),
      similar,
      el("dl", {},
        ...fact("label score", points.score[index].toFixed(3)),
        ...fact("weight", points.weight[index].toFixed(3)),
        el("dt", {}, "network sees"), network, el("dt", {}, "example"), file),
    );
    update(index);
    tell(index).then((item) => {
      if (index !== shownIndex) return;
      network.textContent = item.predicted ? `${classes[item.predicted[0]]} (${percent(item.predicted[1])})` : "not kept";
      file.textContent = item.id === `${index}` ? `number ${index}` : `${item.id} (number ${index})`;
      similar.replaceChildren(...alike(index, item.similar));
    }, () => {});
    const next = list[nextOpen(here + 1)];
    if (next !== undefined && points.pictured[next]) {
      new Image().src = `image/train/${next}/large`;
      tell(next).catch(() => {});
    }
  }

  function chips(index) {
    return el("div", { class: "chips", role: "group", "aria-label": "The right label" }, ...classes.map((name, c) =>
      el("button", { "data-label": c, title: `key ${c}`, onclick: () => views.decide("label", c) },
        name === `${c}` ? null : el("kbd", {}, `${c}`), el("span", {}, name))));
  }

  function alike(index, groups) {
    if (!groups) return [el("p", { class: "quiet" }, "The run kept no features of this example to compare with trusted ones.")];
    const row = (title, found) => found.length ? el("div", {},
      el("h3", {}, ...title),
      el("div", { class: "row" }, ...found.map(([number, label]) => {
        const kind = label === points.given[index] ? "is-given" : label === points.suggested[index] ? "is-suggested" : "";
        const frame = load(picture("trusted", number, "small", `trusted example of ${classes[label]}`));
        return el("figure", { class: kind }, frame, el("figcaption", {}, classes[label]));
      }))) : null;
    const name = (label) => el("span", { class: "name" }, classes[label]);
    const rows = [row(["Most similar trusted examples"], groups.all)];
    if (points.given[index] !== points.suggested[index]) {
      rows.push(el("div", { class: "pair" },
        row(["Trusted ", name(points.suggested[index])], groups.suggested),
        row(["Trusted ", name(points.given[index])], groups.given)));
    }
    return rows.filter((r) => r !== null);
  }

  function update(index) {
    side.querySelector(".where").textContent = `${count(here + 1)} of ${count(list.length)}`;
    const line = side.querySelector(".verdict");
    line.replaceChildren(...(decided[index] ? [badge(index)] : []));
    side.querySelectorAll(".chips button").forEach((button) => {
      const label = Number(button.dataset.label);
      button.setAttribute("aria-pressed", decided[index] > 0 && decided[index] < 4 && chosen[index] === label);
      button.classList.toggle("hint", label === points.suggested[index]);
    });
  }

  listeners.push((changed) => { if (!root.hidden && changed.includes(shownIndex)) update(shownIndex); });
  return { draw, scale, fit: () => (zoom ? scale(-STEPS.length) : scale(4)), smoothen: () => smoother.click() };
})();
