// Confusion matrices side by side: AutoDO's and that of another method, where one was measured.
function drawConfusions(root) {
  const { matrices } = data.confusion;
  const [ours, ...others] = matrices;
  const pair = el("div", { class: "two" });
  const show = (other) => pair.replaceChildren(
    ...(other ? [panel(other, "before")] : []), panel(ours, other ? "after" : null));
  if (others.length > 1) {
    const options = others.map((m, k) => [k, `${m.name}, ${m.error}`]);
    root.append(el("div", { class: "tools" }, choice("compare with", options, (k) => show(others[k]))));
  }
  root.append(pair);
  show(others[0]);
  redraws.push(() => show(others[root.querySelector("select")?.value ?? 0]));

  function panel(matrix, when) {
    const totals = new Array(classes.length).fill(0);
    for (const [i, , n] of matrix.cells) totals[i] += n;
    const title = el("h3", {}, when ? `${when}: ${matrix.name}` : matrix.name, el("small", {}, `error ${matrix.error}`));
    const drawn = classes.length <= 20 ? table(matrix, totals) : picture(matrix, totals);
    return el("div", { class: when ? "panel" : "panel alone" }, title, el("div", { class: "scroll" }, drawn), worst(matrix, totals));
  }

  function shade(i, j, share) {
    // At most 45%, so that the number on it stays readable.
    return `color-mix(in srgb, var(--${i === j ? "accent" : "warn"}) ${Math.round(45 * Math.sqrt(share))}%, var(--raised))`;
  }

  function table(matrix, totals) {
    const counts = new Map(matrix.cells.map(([i, j, n]) => [i * classes.length + j, n]));
    const tall = classes.some((name) => name.length > 3);
    const head = el("tr", {}, el("td", { class: "zero" }));
    for (const name of classes) head.append(el("th", { scope: "col", class: tall ? "tall" : null, title: name }, el("span", {}, name)));
    const body = el("tbody");
    classes.forEach((name, i) => {
      const row = el("tr", {}, el("th", { scope: "row", title: name }, name));
      classes.forEach((other, j) => {
        const n = counts.get(i * classes.length + j) ?? 0;
        const cell = el("td", { class: n ? null : "zero", title: `${name} taken for ${other}: ${count(n)} of ${count(totals[i])}` }, `${n}`);
        if (n) cell.style.background = shade(i, j, n / totals[i]);
        row.append(cell);
      });
      body.append(row);
    });
    return el("table", { class: "matrix" }, el("caption", { class: "sr" }, `Confusion matrix of ${matrix.name}`), el("thead", {}, head), body);
  }

  function picture(matrix, totals) {
    const size = classes.length;
    const scale = Math.max(1, Math.floor(600 / size));
    const canvas = el("canvas", { class: "matrix-canvas", width: size * scale, height: size * scale, role: "img",
      "aria-label": `Confusion matrix of ${matrix.name} over ${size} classes; the largest confusions are listed below` });
    const context = canvas.getContext("2d");
    context.fillStyle = theme.raised;
    context.fillRect(0, 0, canvas.width, canvas.height);
    const counts = new Map();
    for (const [i, j, n] of matrix.cells) {
      counts.set(i * size + j, n);
      context.globalAlpha = 0.12 + 0.88 * Math.sqrt(n / totals[i]);
      context.fillStyle = i === j ? theme.accent : theme.warn;
      context.fillRect(j * scale, i * scale, scale, scale);
    }
    canvas.addEventListener("pointermove", (event) => {
      const box = canvas.getBoundingClientRect();
      const j = Math.floor(((event.clientX - box.left) / box.width) * size);
      const i = Math.floor(((event.clientY - box.top) / box.height) * size);
      if (i < 0 || j < 0 || i >= size || j >= size) return;
      showTip(event.clientX, event.clientY, ...lines(`${classes[i]} taken for ${classes[j]}`, `${count(counts.get(i * size + j) ?? 0)} of ${count(totals[i])}`));
    });
    canvas.addEventListener("pointerleave", hideTip);
    return canvas;
  }

  function worst(matrix, totals) {
    const pairs = matrix.cells.filter(([i, j]) => i !== j).sort((a, b) => b[2] - a[2]).slice(0, 5);
    const list = el("ol", { class: "pairs", "aria-label": "largest confusions" });
    for (const [i, j, n] of pairs) {
      list.append(el("li", {}, el("span", {}, `${classes[i]} taken for ${classes[j]}`), el("span", { class: "quiet number" }, `${count(n)} of ${count(totals[i])}`)));
    }
    return pairs.length ? list : el("p", { class: "quiet" }, "Nothing is confused.");
  }
}
