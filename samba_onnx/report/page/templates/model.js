// The program as the page carries it: columns of numbers, and each text once.

/** @typedef {{id: number, name: string, home: string, type: string, graph: string, time: number, first: number, count: number, flops: number, bound: string}} Stage */
/** @typedef {[number, number, number]} Repeat Start, period, count. */
/** @typedef {{name: string[], op: number[], module: number[], line: number[], why: number[], flops: number[], weights: number[], time: number[], x: number[], y: number[], error?: number[]}} Nodes */
/** @typedef {{name: string[], type: number[], bytes: number[], from: number[], to: number[][]}} Edges */
/** @typedef {{stages: Stage[], layers: Repeat[], links: [number, number, number, number][], repeats: Object<string, Repeat[]>, folded: Object<string, [number, number, number][]>, node: Nodes, edge: Edges, texts: string[]}} Data */

/** The data of the page; it is written by the program that made it, and read once. */
const data = /** @type {Data} */ (JSON.parse(/** @type {HTMLElement} */ (document.getElementById("data")).textContent || "null"));
const { stages, node, edge, texts } = data;
const nodeCount = node.name.length;

/** @param {string[]} coded @returns {string[]} Names of which each begins as the one before, for so many characters. */
function decoded(coded) {
  let before = "";
  return coded.map((text) => (before = before.slice(0, parseInt(text.slice(0, 2), 16)) + text.slice(2)));
}
node.name = decoded(node.name);
edge.name = decoded(edge.name);

/** The index of each node's stage. */
const stageOf = new Int32Array(nodeCount);
stages.forEach((stage, index) => stageOf.fill(index, stage.first, stage.first + stage.count));

/** Edges that a node reads and writes. @type {number[][]} */
const reads = Array.from({ length: nodeCount }, () => []);
/** @type {number[][]} */
const writes = Array.from({ length: nodeCount }, () => []);
edge.from.forEach((from, index) => {
  if (from >= 0) writes[from].push(index);
  for (const to of edge.to[index]) reads[to].push(index);
});

/** @param {number} id @returns {string} What a node is called. */
const nodeName = (id) => node.name[id] || `${texts[node.op[id]]} ${id}`;

/** @param {number} nanoseconds @returns {string} A duration for people. */
function timeText(nanoseconds) {
  if (!nanoseconds) return "0 s";
  for (const [unit, size] of /** @type {[string, number][]} */ ([["ns", 1], ["µs", 1e3], ["ms", 1e6], ["s", 1e9]])) {
    const value = nanoseconds / size;
    if (value < 999.5 || unit === "s") return `${value < 9.95 ? value.toFixed(1) : value.toFixed(0)} ${unit}`;
  }
  return "";
}

/** @param {number} count @param {string} unit @returns {string} A number with a prefix, as 1.2 MB. */
function amountText(count, unit) {
  if (count < 0) return "size not known";
  let value = count, step = 0;
  while (value >= 999.5 && step < 6) { value /= 1000; step += 1; }
  const digits = step === 0 ? String(value) : value < 9.95 ? value.toFixed(1) : value.toFixed(0);
  return `${digits} ${["", "k", "M", "G", "T", "P", "E"][step]}${unit}`;
}

/**
 * Find nodes whose name, operator, module or line has all words of a query.
 * @param {string} query
 * @param {number} most
 * @returns {{ids: number[], count: number}} The first, and how many there are.
 */
function findNodes(query, most) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return { ids: [], count: 0 };
  // Texts are few where nodes are many: each is looked at once.
  const has = words.map((word) => texts.map((text) => text.toLowerCase().includes(word)));
  const ids = [];
  let count = 0;
  for (let id = 0; id < nodeCount; id += 1) {
    const name = node.name[id].toLowerCase();
    if (words.every((word, at) => name.includes(word) || has[at][node.op[id]] || has[at][node.line[id]] || has[at][node.module[id]])) {
      count += 1;
      if (ids.length < most) ids.push(id);
    }
  }
  return { ids, count };
}

/**
 * Find the way to the nearest node on the CPU, along values in either direction.
 * @param {number} start
 * @returns {number[]} Nodes from the start on; empty where there is no way.
 */
function wayToFallback(start) {
  const before = new Int32Array(nodeCount).fill(-1);
  before[start] = start;
  let ring = [start];
  while (ring.length) {
    const next = [];
    for (const id of ring) {
      if (stages[stageOf[id]].home === "cpu") {
        const way = [id];
        while (way[0] !== start) way.unshift(before[way[0]]);
        return way;
      }
      const around = writes[id].flatMap((one) => edge.to[one]).concat(reads[id].map((one) => edge.from[one]));
      for (const other of around) {
        if (other >= 0 && before[other] < 0) { before[other] = id; next.push(other); }
      }
    }
    ring = next;
  }
  return [];
}

/** @param {string} name @returns {number} The node of a name, which a link has; -1 where there is none. */
function nodeNamed(name) {
  const at = node.name.indexOf(name);
  if (at >= 0) return at;
  return /^\d+$/.test(name) && Number(name) < nodeCount ? Number(name) : -1;
}

/**
 * Say which element stands for each where equal stretches are folded.
 * @param {number} count
 * @param {Repeat[]} repeats
 * @returns {Int32Array} Indices of those that are shown.
 */
function standIns(count, repeats) {
  const shown = Int32Array.from({ length: count }, (_, index) => index);
  for (const [start, period, times] of repeats) {
    for (let index = start + period; index < start + period * times; index += 1) shown[index] = start + ((index - start) % period);
  }
  return shown;
}
