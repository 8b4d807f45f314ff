// The dialogs: choosing a class by typing, and the keys.
const picker = document.body.appendChild(el("dialog", { class: "picker" }));

// Resolves to a class, to null for the first option if there is one, or to undefined if given up.
function pick(title, { first = null, note = () => "" } = {}) {
  return new Promise((resolve) => {
    const options = [...(first ? [[null, first, ""]] : []), ...classes.map((name, c) => [c, name, note(c)])];
    let found = [], active = 0;
    const input = el("input", { type: "search", "aria-label": title, placeholder: "type a name or a number", autocomplete: "off", spellcheck: "false" });
    const items = el("div", { class: "options", role: "listbox", "aria-label": title });
    const close = (value) => { picker.close(); resolve(value); };
    const draw = () => {
      const text = input.value.trim().toLowerCase();
      const rank = ([c, name]) => {
        const low = name.toLowerCase();
        if (text === "") return 0;
        if (low === text || `${c}` === text) return 0;
        return low.startsWith(text) ? 1 : low.includes(text) ? 2 : 9;
      };
      found = options.map((o) => [rank(o), o]).filter(([r]) => r < 9).sort((a, b) => a[0] - b[0]).map(([, o]) => o).slice(0, 200);
      active = Math.max(0, Math.min(active, found.length - 1));
      items.replaceChildren(...found.map(([c, name, told], k) =>
        el("div", { role: "option", id: `option-${k}`, "aria-selected": k === active, onclick: () => close(c) },
          el("span", {}, name), el("small", {}, told))));
      if (!found.length) items.append(el("p", { class: "quiet" }, "No class is called so."));
      input.setAttribute("aria-activedescendant", found.length ? `option-${active}` : "");
      items.children[active]?.scrollIntoView({ block: "nearest" });
    };
    input.addEventListener("input", () => { active = 0; draw(); });
    picker.replaceChildren(el("h2", {}, title), input, items);
    picker.onkeydown = (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step && found.length) {
        event.preventDefault();
        active = (active + step + found.length) % found.length;
        draw();
      } else if (event.key === "Enter" && found.length) {
        event.preventDefault();
        close(found[active][0]);
      }
    };
    picker.onclick = (event) => event.target === picker && picker.close();
    picker.onclose = () => resolve(undefined);
    picker.showModal();
    draw();
    input.focus();
  });
}

const KEYS = [
  ["a", "accept the suggested label"], ["k", "keep the given label"], ["l", "choose another label"],
  ...(classes.length <= 10 ? [[classes.length > 1 ? `0 … ${classes.length - 1}` : "0", "choose the class of that number"]] : []),
  ["x", "mark as unusable"], ["u", "undo"], ["g", "go to a class"],
  ["← → ↑ ↓", "move"], ["n", "next that is not decided"], ["Enter", "open"], ["Esc", "back to the grid"],
  ["z  +  −", "zoom; so do the wheel and a double click"], ["s", "smooth small pictures"], ["?", "these keys"],
];
const helper = document.body.appendChild(el("dialog", { class: "helper", "aria-label": "Keys" },
  el("h2", {}, "Keys"),
  el("dl", {}, ...KEYS.flatMap(([key, about]) => [el("dt", {}, ...key.split("  ").map((k) => el("kbd", {}, k))), el("dd", {}, about)])),
  el("p", { class: "quiet" }, "Every decision is on the disk before the page goes on. The score is the learned probability of the given label; the estimate of labels to come is corrected by what you decide."),
  el("button", { onclick: () => helper.close() }, "Close")));
helper.addEventListener("click", (event) => event.target === helper && helper.close());
