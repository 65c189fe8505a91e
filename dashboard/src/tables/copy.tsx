// Buttons that copy tables as Markdown, LaTeX and CSV, the text that `ablate table -o ...` prints, and download the CSV.
import { useState } from "preact/hooks";
import { announce } from "../app/widgets";
import { download } from "../charts/card";
import { type Records, type Sheet, joined, toCsv, toLatex, toMarkdown } from "./sheet";

async function toClipboard(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Pages over plain http beyond localhost have no clipboard of the new kind.
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "visually-hidden";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

export function CopyButtons({ sheets, records, name }: { sheets: () => readonly Sheet[]; records: () => Records; name: string }) {
  const [said, setSaid] = useState("");
  const copy = (what: string, text: string): void => {
    void toClipboard(text).then((done) => {
      const message = done ? `Copied as ${what}.` : `The browser does not let this page copy; download the CSV instead.`;
      setSaid(message);
      announce(message);
    });
  };
  return (
    <div class="tools">
      <button type="button" onClick={() => copy("Markdown", joined(sheets(), toMarkdown))}>Copy Markdown</button>
      <button type="button" onClick={() => copy("LaTeX", joined(sheets(), toLatex))}>Copy LaTeX</button>
      <button type="button" onClick={() => copy("CSV", toCsv(records()))}>Copy CSV</button>
      <button type="button" onClick={() => download(name, "text/csv", toCsv(records()))}>Download CSV</button>
      <span class="muted">{said}</span>
    </div>
  );
}
