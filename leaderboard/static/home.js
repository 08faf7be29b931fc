// Sorts, filters and searches the rankings. The paper's rows stay a group of their own.
(() => {
  "use strict";
  const find = (id) => document.getElementById(id);
  const search = find("search");
  if (!search) return;
  const filters = { keyed: find("filter-keyed"), preset: find("filter-preset") };
  const norm = find("filter-norm"), paper = find("show-paper"), chooser = find("sort"), status = find("shown");
  const sections = [...document.querySelectorAll(".ranking")];
  const numeric = new Set(["place", "known", "coverage", "clean", "examples"]);
  const upwards = new Set(["place", "name"]);
  let order = { by: "place", up: true };

  const compare = (a, b) => {
    const x = a.dataset[order.by], y = b.dataset[order.by];
    const difference = numeric.has(order.by) ? Number(x) - Number(y) : x.localeCompare(y, "en");
    return order.up ? difference : -difference;
  };

  const sort = () => {
    for (const body of document.querySelectorAll(".rank tbody")) {
      const rows = [...body.rows].filter((row) => !row.classList.contains("group"));
      rows.sort(compare).forEach((row) => body.append(row));
    }
    for (const button of document.querySelectorAll(".rank thead button")) {
      const own = button.dataset.sort === order.by;
      button.parentElement.setAttribute("aria-sort", own ? (order.up ? "ascending" : "descending") : "none");
    }
    chooser.value = order.by;
  };

  const matches = (row, words) => {
    if (filters.keyed.value && row.dataset.keyed !== filters.keyed.value) return false;
    if (filters.preset.value && row.dataset.preset !== filters.preset.value) return false;
    const text = row.dataset.text.toLowerCase();
    return words.every((word) => text.includes(word));
  };

  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const section of sections) {
      section.hidden = Boolean(norm.value) && section.dataset.norm !== norm.value;
      let here = 0;
      for (const body of section.querySelectorAll(".rank tbody")) {
        const published = body.classList.contains("paper");
        let own = 0;
        for (const row of body.rows) {
          if (row.classList.contains("group")) continue;
          row.hidden = (published && !paper.checked) || !matches(row, words);
          own += row.hidden ? 0 : 1;
        }
        if (published) body.hidden = own === 0;
        else if (!section.hidden) shown += own;
        here += own;
      }
      const empty = section.querySelector(".empty");
      if (empty) empty.hidden = here > 0;
    }
    status.textContent = `${shown} results shown`;
  };

  for (const button of document.querySelectorAll(".rank thead button")) {
    button.addEventListener("click", () => {
      const by = button.dataset.sort;
      order = { by, up: order.by === by ? !order.up : upwards.has(by) };
      sort();
    });
  }
  chooser.addEventListener("change", () => { order = { by: chooser.value, up: upwards.has(chooser.value) }; sort(); });
  search.addEventListener("input", filter);
  for (const control of [norm, paper, ...Object.values(filters)]) control.addEventListener("change", filter);
  search.form.addEventListener("submit", (event) => event.preventDefault());
  sort();
  filter();
})();
