// What is known of every example, what is decided of it, and the server that writes decisions.
const points = {
  given: unpack(data.given, Uint16Array),
  suggested: unpack(data.suggested, Uint16Array),
  score: unpack(data.score, Float32Array),
  weight: unpack(data.weight, Float32Array),
  suspect: unpack(data.suspect, Uint8Array),
  pictured: unpack(data.pictured, Uint8Array),
};
const total = points.given.length;
const suspects = points.suspect.reduce((sum, s) => sum + s, 0);

const ACTIONS = ["", "accept", "keep", "label", "unusable"];
const WORDS = ["not decided", "accepted", "kept", "relabelled", "unusable"];
const decided = new Uint8Array(total); // the number of the action that holds
const chosen = new Int32Array(total); // the label it leads to
let reviewedSuspects = 0, reviewedOthers = 0;
let lines = 0, latest = null, model = null;
const mine = []; // [line, index] of the decisions of this tab, which undo takes back first
const listeners = []; // called with the indices that changed

function receive(state) {
  if (state.lines < lines) return; // an answer that was overtaken
  const changed = [], news = state.lines > lines || model === null;
  for (const [index, action, label] of state.changed) {
    const was = decided[index] > 0;
    decided[index] = action === null ? 0 : ACTIONS.indexOf(action);
    chosen[index] = label ?? (action === "accept" ? points.suggested[index] : points.given[index]);
    const step = (decided[index] > 0) - was;
    if (points.suspect[index]) reviewedSuspects += step;
    else reviewedOthers += step;
    changed.push(index);
  }
  lines = state.lines;
  latest = state.last;
  model = state.estimate;
  if (news) listeners.forEach((listener) => listener(changed));
}

class Refusal extends Error {}

async function ask(path, body) {
  let answer;
  try {
    answer = await fetch(path, body && {
      method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" },
    });
  } catch {
    connected(false);
    throw new Refusal("the server does not answer");
  }
  connected(true);
  if (!answer.ok) throw new Refusal((await answer.text()).trim());
  return answer.json();
}

// Decisions follow one another: each is on the disk before the next is sent or anything is shown.
let chain = Promise.resolve();
const inTurn = (work) => (chain = chain.then(work).catch((error) => {
  if (!(error instanceof Refusal)) throw error;
  toast(`Not saved: ${error.message}.`, true);
}));

async function decide(index, action, label) {
  const answer = await ask("decide", { index, action, label, since: lines });
  mine.push([answer.line, index]);
  receive(answer);
}

// Takes back the last decision of this tab or, if it made none, of the review; returns its example.
async function undo() {
  const [line, index] = mine.pop() ?? latest ?? [];
  if (index === undefined) return null;
  receive(await ask("decide", { index, action: "undo", line, since: lines }));
  return index;
}

// Other tabs decide too.
async function poll() {
  if (document.hidden) return;
  try {
    receive(await ask(`state?since=${lines}`));
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
  }
}
setInterval(poll, 1000);
document.addEventListener("visibilitychange", poll);

function connected(yes) {
  document.body.classList.toggle("gone", !yes);
  const shown = document.querySelector("#gone");
  if (yes) shown?.remove();
  else if (!shown) {
    $("notes").prepend(el("p", { class: "note bad", id: "gone", role: "alert" },
      "The server has ended. Everything decided so far is saved; start autodo review again and open the link that it prints."));
  }
}

// P(wrong) = sigmoid(a + b x): how many of these labels are likely wrong, and between which bounds.
function likelyWrong(indices) {
  const [a, b] = model.mean, cov = model.covariance;
  let sum = 0, own = 0, da = 0, db = 0;
  for (const index of indices) {
    const score = points.score[index];
    const odds = Math.log1p(-score) - Math.log(score);
    const x = Math.min(data.farthest, Math.max(-data.farthest, odds));
    const p = 1 / (1 + Math.exp(-(a + b * x)));
    sum += p; own += p * (1 - p); da += p * (1 - p); db += p * (1 - p) * x;
  }
  const deviation = Math.sqrt(own + da * (cov[0][0] * da + cov[0][1] * db) + db * (cov[1][0] * da + cov[1][1] * db));
  const bound = (v) => Math.round(Math.min(indices.length, Math.max(0, v)));
  return { sum: Math.round(sum), low: bound(sum - 1.645 * deviation), high: bound(sum + 1.645 * deviation) };
}

// The examples that the filters leave, in their order.
const filters = { show: "suspected", given: null, suggested: null, order: "surest", score: [0, 1], weight: [0, Infinity] };
const SHOW = {
  suspected: (i) => points.suspect[i],
  open: (i) => points.suspect[i] && !decided[i],
  decided: (i) => decided[i],
  all: () => true,
};
const ORDERS = {
  surest: (i, j) => points.score[i] - points.score[j],
  unsure: (i, j) => points.score[j] - points.score[i],
  light: (i, j) => points.weight[i] - points.weight[j],
  heavy: (i, j) => points.weight[j] - points.weight[i],
  given: (i, j) => points.given[i] - points.given[j] || points.score[i] - points.score[j],
  suggested: (i, j) => points.suggested[i] - points.suggested[j] || points.score[i] - points.score[j],
  set: () => 0,
};
let list = new Uint32Array(0);
let here = 0; // the place in the list

function relist() {
  const show = SHOW[filters.show];
  const found = [];
  for (let i = 0; i < total; i++) {
    if (show(i)
      && (filters.given === null || points.given[i] === filters.given)
      && (filters.suggested === null || points.suggested[i] === filters.suggested)
      && points.score[i] >= filters.score[0] && points.score[i] <= filters.score[1]
      && points.weight[i] >= filters.weight[0] && points.weight[i] <= filters.weight[1]) found.push(i);
  }
  const order = ORDERS[filters.order];
  list = Uint32Array.from(found).sort((i, j) => order(i, j) || i - j);
}

// The place of the next example that is not decided, from a place on and round again; -1 if none.
function nextOpen(from, step = 1) {
  for (let k = 0; k < list.length; k++) {
    const place = (((from + step * k) % list.length) + list.length) % list.length;
    if (!decided[list[place]]) return place;
  }
  return -1;
}

function comingOpen(wanted) {
  const found = [];
  for (let k = 0; k < list.length && found.length < wanted; k++) {
    const index = list[(here + k) % list.length];
    if (!decided[index]) found.push(index);
  }
  return found;
}
