// Keys, and what the pages show.

import { el, showDialog } from "./dom.js";

const keys = [
  ["/", "search"], ["f", "flame graph"], ["t", "table of functions"], ["b", "binaries"], ["p", "processes and other labels"],
  ["c", "callers and callees of the function that is chosen"], ["l", "its lines"], ["i", "its instructions"],
  ["arrow keys", "move between frames, in the flame graph"], ["Enter", "zoom to the frame that is chosen"],
  ["+ −", "widen and narrow; also Ctrl and the wheel"], ["Escape", "leave a field, close the details, zoom out"], ["d", "light or dark"], ["?", "this help"],
];

/** Shows the help. */
export function showHelp() {
  showDialog("Keys",
    el("table", null, el("tbody", null, keys.map(([k, text]) => el("tr", null,
      el("td", null, el("kbd", null, k)), el("td", { class: "text" }, text))))),
    el("p", null, "A click chooses a frame and shows what is known of it. Another click, or a double click, zooms to it. The URL has all that is shown: copy it to come back."),
    el("p", null, "Hatched places of the flame graph stand for frames that are too narrow to be seen: zoom to see them. “callers missing” stands over stacks that end early, “completeness unknown” over those that do not show whether they do."));
}
