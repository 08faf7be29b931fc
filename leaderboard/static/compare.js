// Shows the chosen defences and their pairs, and puts each test's result in words.
(() => {
  "use strict";
  for (const section of document.querySelectorAll(".comparison")) {
    const boxes = [...section.querySelectorAll(".choice input")];
    const note = section.querySelector(".pairs-note");
    const show = () => {
      const chosen = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
      for (const cell of section.querySelectorAll("[data-board]")) cell.hidden = !chosen.has(cell.dataset.board);
      const pairs = [...section.querySelectorAll("[data-pair]")].filter((row) => {
        row.hidden = !row.dataset.pair.split(" ").every((id) => chosen.has(id));
        return !row.hidden;
      });
      // Bonferroni: with so many pairs at once, only a smaller p is more than chance.
      const level = 0.05 / Math.max(1, pairs.length);
      for (const row of pairs) {
        const verdict = row.querySelector(".verdict");
        const clear = Number(row.dataset.p) < level;
        verdict.textContent = clear ? `${verdict.dataset.better} holds up better` : "no clear difference";
        verdict.classList.toggle("none", !clear);
      }
      note.textContent = pairs.length === 0 ? "Choose at least two defences."
        : pairs.length === 1 ? "Called a difference where p is below 0.05."
        : `With ${pairs.length} pairs at once, called a difference where p is below 0.05 / ${pairs.length} = ${level.toPrecision(2)}.`;
    };
    boxes.forEach((box) => box.addEventListener("change", show));
    show();
  }
})();
