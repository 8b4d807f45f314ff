// Weights by class: one small histogram each on one logarithmic axis, those farthest from 1 first.
function drawHistograms(root) {
  const { edges, counts } = data.histogram;
  const few = 24;
  const bins = edges.length - 1;
  const middle = (k) => Math.log2((edges[k] + edges[k + 1]) / 2);
  const totals = counts.map((row) => row.reduce((a, b) => a + b, 0));
  const means = counts.map((row, c) => row.reduce((sum, n, k) => sum + n * middle(k), 0) / totals[c]);
  const present = classes.map((_, c) => c).filter((c) => totals[c] > 0);
  const orders = {
    class: () => [...present],
    raised: () => [...present].sort((a, b) => means[b] - means[a]),
    muted: () => [...present].sort((a, b) => means[a] - means[b]),
  };
  const everything = edges.slice(1).map((_, k) => counts.reduce((sum, row) => sum + row[k], 0));
  const all = totals.reduce((a, b) => a + b, 0);
  const grid = el("div", { class: "histograms" });
  const more = el("button", { onclick: () => { limit = Infinity; draw(); } });
  let order = "class", limit = few;
  root.append(el("div", { class: "tools" }, choice("order", [["class", "by class"], ["raised", "most raised first"], ["muted", "most muted first"]], (v) => { order = v; draw(); })));
  root.append(grid, el("div", { class: "more" }, more));
  draw();

  function draw() {
    const sorted = orders[order]();
    grid.replaceChildren(...sorted.slice(0, limit).map(figure));
    more.hidden = sorted.length <= limit;
    more.textContent = `Show all ${sorted.length} classes`;
  }

  function figure(c) {
    const width = 200, height = 74, base = 58;
    const share = (row, total, k) => row[k] / Math.max(1, total);
    const high = Math.max(...counts[c].map((n) => n / totals[c]), ...everything.map((n) => n / all));
    const drawn = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": `weights of ${classes[c]}: ${count(totals[c])} images, typical weight ${(2 ** means[c]).toFixed(2)}` });
    const step = width / bins;
    for (let k = 0; k < bins; k++) {
      const other = (share(everything, all, k) / high) * base;
      drawn.append(svg("rect", { class: "all", x: k * step, y: base - other, width: step - 0.6, height: other }));
    }
    for (let k = 0; k < bins; k++) {
      if (!counts[c][k]) continue;
      const tall = Math.max(1, (share(counts[c], totals[c], k) / high) * base);
      drawn.append(svg("rect", { class: edges[k] >= 0.9999 ? "up" : null, x: k * step + 0.6, y: base - tall, width: step - 1.8, height: tall }));
    }
    drawn.append(svg("line", { class: "one", x1: width / 2, x2: width / 2, y1: 0, y2: base }));
    for (const [x, anchor, text] of [[0, "start", edges[0]], [width / 2, "middle", 1], [width, "end", edges[bins]]]) {
      drawn.append(svg("text", { x, y: height - 3, "text-anchor": anchor }, `${+Number(text).toPrecision(2)}`));
    }
    drawn.addEventListener("pointermove", (event) => {
      const box = drawn.getBoundingClientRect();
      const k = Math.max(0, Math.min(bins - 1, Math.floor(((event.clientX - box.left) / box.width) * bins)));
      showTip(event.clientX, event.clientY, ...lines(`weight ${edges[k].toFixed(2)} to ${edges[k + 1].toFixed(2)}`, `${count(counts[c][k])} of ${count(totals[c])} images of ${classes[c]}`, `${percent(share(everything, all, k))} of all images`));
    });
    drawn.addEventListener("pointerleave", hideTip);
    return el("figure", {}, el("figcaption", {}, el("b", { title: classes[c] }, classes[c]), el("span", { class: "quiet number" }, (2 ** means[c]).toFixed(2))), drawn);
  }
}
