// Before the first paint, so that a dark page does not flash white: the theme chosen with the switch, else the system's.
(function () {
  var dark = matchMedia("(prefers-color-scheme: dark)");
  window.applyTheme = function () {
    var chosen = null;
    try {
      chosen = localStorage.getItem("ablate.theme");
    } catch (error) {
      // Storage may be forbidden; the system's theme holds.
    }
    var theme = chosen === "light" || chosen === "dark" ? chosen : dark.matches ? "dark" : "light";
    document.documentElement.dataset.theme = theme;
  };
  dark.addEventListener("change", window.applyTheme);
  window.applyTheme();
})();
