// Light or dark: as the system has it, or as the user chose.

/** @type {((dark: boolean) => void)[]} */
const listeners = [];
const system = matchMedia("(prefers-color-scheme: dark)");
const key = "hallmark-theme";

/** @returns {"light" | "dark" | ""} what the user chose */
function chosen() {
  try {
    const value = localStorage.getItem(key);
    return value === "light" || value === "dark" ? value : "";
  } catch {
    return "";
  }
}

export function isDark() {
  return (chosen() || (system.matches ? "dark" : "light")) === "dark";
}

function apply() {
  const dark = isDark();
  document.documentElement.classList.toggle("dark", dark);
  document.documentElement.classList.toggle("light", !dark);
  for (const f of listeners) f(dark);
}

/** @param {(dark: boolean) => void} f is called after each change */
export function onTheme(f) {
  listeners.push(f);
}

export function toggleTheme() {
  try {
    localStorage.setItem(key, isDark() ? "light" : "dark");
  } catch {
    // The choice lasts as long as the page.
  }
  apply();
}

system.addEventListener("change", apply);
apply();
