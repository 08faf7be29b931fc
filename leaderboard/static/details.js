// Opens the folded board that a link points into.
(() => {
  "use strict";
  const open = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    const folded = target && target.closest("details");
    if (folded) { folded.open = true; target.scrollIntoView(); }
  };
  addEventListener("hashchange", open);
  open();
})();
