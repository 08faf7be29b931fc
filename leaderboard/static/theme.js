// The reader's choice of light or dark, remembered; runs before the page is drawn, so that it never flashes.
(() => {
  "use strict";
  const root = document.documentElement;
  const stored = () => { try { return localStorage.getItem("bench-theme"); } catch { return null; } };
  const keep = (value) => { try { localStorage.setItem("bench-theme", value); } catch { /* private window: not remembered */ } };
  const system = () => (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const chosen = stored();
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const tell = () => button.setAttribute("aria-pressed", String((root.dataset.theme || system()) === "dark"));
    button.addEventListener("click", () => {
      root.dataset.theme = (root.dataset.theme || system()) === "dark" ? "light" : "dark";
      keep(root.dataset.theme);
      tell();
    });
    tell();
  });
})();
