// Tables that a click on a heading sorts.

/** @param {string} text @returns {number} The number that a cell begins with, in its unit; NaN for words. */
function cellNumber(text) {
  const [, digits, unit] = /^([-+]?[\d,.]+)\s*(\S*)/.exec(text) || [];
  /** @type {Object<string, number>} */
  const units = { "": 1, "%": 1, B: 1, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12, ns: 1e-9, "µs": 1e-6, ms: 1e-3, s: 1, FLOP: 1, kFLOP: 1e3, MFLOP: 1e6, GFLOP: 1e9, TFLOP: 1e12 };
  return digits === undefined || units[unit] === undefined ? NaN : Number(digits.replaceAll(",", "")) * units[unit];
}

for (const table of /** @type {NodeListOf<HTMLTableElement>} */ (document.querySelectorAll("table.sortable"))) {
  const heads = [...table.tHead?.rows[0].cells || []];
  heads.forEach((head, at) => {
    const sorter = document.createElement("button");
    sorter.type = "button";
    sorter.textContent = head.textContent;
    head.replaceChildren(sorter);
    sorter.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((one) => one.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const body = table.tBodies[0];
      const key = (/** @type {HTMLTableRowElement} */ row) => row.cells[at].innerText.trim();
      const sorted = [...body.rows].sort((one, other) => {
        const [a, b] = [cellNumber(key(one)), cellNumber(key(other))];
        return isNaN(a) || isNaN(b) ? key(one).localeCompare(key(other)) : a - b;
      });
      body.replaceChildren(...(down ? sorted.reverse() : sorted));
    });
  });
}
