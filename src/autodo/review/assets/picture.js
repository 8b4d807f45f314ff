// Pictures, labels and badges, as the grid and the single view show them.
function picture(set, index, size, alt = "") {
  const frame = el("span", { class: "picture" });
  if (set === "train" && !points.pictured[index]) {
    frame.append(el("span", { class: "none" }, "no picture"));
    return frame;
  }
  const image = el("img", { alt, decoding: "async", draggable: "false" });
  image.addEventListener("load", () => image.classList.toggle("exact", image.naturalWidth <= 64));
  image.addEventListener("error", () => image.hasAttribute("src") && missing(frame, `image/${set}/${index}/${size}`));
  image.dataset.src = `image/${set}/${index}/${size}`;
  frame.append(image);
  return frame;
}

const load = (frame) => {
  const image = frame.querySelector("img:not([src])");
  if (image) image.src = image.dataset.src;
  return frame;
};

// A picture that left the screen before it came need not come.
const unload = (frame) => {
  const image = frame.querySelector("img");
  if (image && !image.complete) image.removeAttribute("src");
};

async function missing(frame, path) {
  const none = el("span", { class: "none" }, "no picture");
  frame.replaceChildren(none);
  try {
    none.textContent = `no picture: ${(await (await fetch(path)).text()).trim()}`;
  } catch { /* the server is gone, which the page says elsewhere */ }
}

function labels(index) {
  const given = classes[points.given[index]], suggested = classes[points.suggested[index]];
  return given === suggested
    ? el("span", { class: "labels" }, el("span", { class: "same" }, given))
    : el("span", { class: "labels" }, el("span", { class: "given" }, given), el("span", {}, " → "), el("span", { class: "suggested" }, suggested));
}

const words = (index) => points.given[index] === points.suggested[index]
  ? `labelled ${classes[points.given[index]]}`
  : `labelled ${classes[points.given[index]]}, looks like ${classes[points.suggested[index]]}`;

// What is decided, in words: "accepted: 3".
function verdict(index) {
  const action = decided[index];
  return action === 1 || action === 2 || action === 3 ? `${WORDS[action]}: ${classes[chosen[index]]}` : WORDS[action];
}

// brief: the card below says which label was accepted or kept.
function badge(index, brief = false) {
  const text = !brief ? verdict(index) : decided[index] === 3 ? `→ ${classes[chosen[index]]}` : WORDS[decided[index]];
  return el("span", { class: `badge ${ACTIONS[decided[index]]}` }, text);
}
