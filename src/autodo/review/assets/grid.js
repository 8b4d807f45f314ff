// The grid: only the cards near the window exist, so a hundred thousand scroll like a hundred.
const grid = (() => {
  const box = $("list"), cards = $("cards");
  const TALLEST = 15e6; // browsers give up on boxes much higher than this
  const shown = new Map(); // place in the list -> card
  let columns = 1, wide = 0, high = 0, gap = 10, ratio = 1, settle = 0;

  const rows = () => Math.ceil(list.length / columns);

  function measure() {
    const style = getComputedStyle(cards);
    const width = cards.clientWidth;
    gap = parseFloat(style.getPropertyValue("--gap"));
    columns = Math.max(1, Math.floor((width + gap) / (parseFloat(style.getPropertyValue("--card")) + gap)));
    wide = (width - gap * (columns - 1)) / columns;
    high = wide + parseFloat(style.getPropertyValue("--caption")) + gap;
    const height = rows() * high, limit = Math.min(height, TALLEST), window = box.clientHeight;
    ratio = height > window ? (height - window) / Math.max(1, limit - window) : 1;
    cards.style.height = `${limit}px`;
  }

  // Where the top of the window lies in the whole, were it not cut to TALLEST.
  const top = () => box.scrollTop * ratio;

  function draw() {
    if ($("grid").hidden) return;
    const shift = top() - box.scrollTop;
    const first = Math.max(0, Math.floor(top() / high) - 2) * columns;
    const last = Math.min(list.length, (Math.ceil((top() + box.clientHeight) / high) + 2) * columns);
    for (const [place, card] of shown) {
      if (place < first || place >= last || Number(card.dataset.index) !== list[place]) {
        unload(card);
        card.remove();
        shown.delete(place);
      }
    }
    for (let place = first; place < last; place++) {
      let card = shown.get(place);
      if (!card) {
        shown.set(place, (card = made(place)));
        cards.append(card);
      }
      card.style.width = `${wide}px`;
      card.style.height = `${high - gap}px`;
      const x = (place % columns) * (wide + gap), y = Math.floor(place / columns) * high - shift;
      card.style.transform = `translate(${x}px, ${y}px)`;
    }
    mark();
    clearTimeout(settle);
    // Pictures that fly by are not asked for.
    settle = setTimeout(() => shown.forEach(load), 60);
  }

  function made(place) {
    const index = list[place];
    const card = el("div", {
      class: "card", role: "option", id: `card-${place}`, "data-index": index,
      "aria-setsize": list.length, "aria-posinset": place + 1,
      onclick: () => (place === here ? views.one() : views.go(place)),
    }, picture("train", index, "small"), labels(index), el("small", {}, filters.order === "light" || filters.order === "heavy" ? `weight ${points.weight[index].toFixed(3)}` : `score ${points.score[index].toFixed(3)}`));
    caption(card, index);
    return card;
  }

  function caption(card, index) {
    card.querySelector(".badge")?.remove();
    if (decided[index]) card.append(badge(index, true));
    card.classList.toggle("settled", decided[index] > 0);
    card.setAttribute("aria-label", `${words(index)}, score ${points.score[index].toFixed(3)}, ${verdict(index)}`);
  }

  function mark() {
    for (const [place, card] of shown) {
      card.setAttribute("aria-selected", place === here);
    }
    if (shown.has(here)) box.setAttribute("aria-activedescendant", `card-${here}`);
    else box.removeAttribute("aria-activedescendant");
  }

  function reveal() {
    const y = Math.floor(here / columns) * high;
    const window = box.clientHeight;
    if (y < top()) box.scrollTop = y / ratio;
    else if (y + high > top() + window) box.scrollTop = (y + high - window) / ratio;
    draw();
  }

  function redraw() {
    shown.forEach((card) => card.remove());
    shown.clear();
    if ($("grid").hidden) return;
    measure();
    reveal();
  }

  box.addEventListener("scroll", draw, { passive: true });
  new ResizeObserver(() => { if (!$("grid").hidden && list.length) { measure(); reveal(); } }).observe(box);
  listeners.push((changed) => {
    const some = new Set(changed);
    for (const [place, card] of shown) if (some.has(list[place])) caption(card, list[place]);
  });

  return {
    redraw, reveal, mark,
    // Where a key leads from here; null if it is not one of the grid's.
    move: (key) => {
      const page = Math.max(1, Math.floor(box.clientHeight / high)) * columns;
      const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, PageUp: -page, PageDown: page, Home: -list.length, End: list.length }[key];
      return step === undefined ? null : Math.min(list.length - 1, Math.max(0, here + step));
    },
  };
})();
