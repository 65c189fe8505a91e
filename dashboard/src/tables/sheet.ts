// A table apart from how it is printed, and its text as Markdown, LaTeX and CSV: the same text as `ablate -o markdown|latex|csv`
// prints (cli/output/printers.cc). Must not know what any column means.

export interface SheetColumn { title: string; right?: boolean; group?: string }
export interface Sheet { title: string; columns: SheetColumn[]; rows: string[][]; footer: string[] }

export type CsvCell = string | number | boolean | null | undefined;
export interface Records { columns: string[]; rows: CsvCell[][] }

// Control characters would break lines.
function oneLine(text: string): string {
  // eslint-disable-next-line no-control-regex
  return text.replace(/\n/g, "\\n").replace(/\t/g, " ").replace(/[\u0000-\u001f\u007f]/g, "?");
}

interface Span { begin: number; end: number; group: string }
export function spans(columns: readonly SheetColumn[]): Span[] {
  const found: Span[] = [];
  columns.forEach((column, i) => {
    const group = column.group ?? "";
    const last = found[found.length - 1];
    if (last && last.group === group) last.end = i + 1;
    else found.push({ begin: i, end: i + 1, group });
  });
  return found;
}

export function hasGroups(sheet: Sheet): boolean {
  return sheet.columns.some((column) => column.group);
}

function markdownEscape(text: string): string {
  // A `<` before a letter would begin a tag, and its text be gone.
  return oneLine(text).replace(/\|/g, "\\|").replace(/<(?=[A-Za-z/!])/g, "&lt;");
}

export function toMarkdown(sheet: Sheet): string {
  const line = (cells: string[]) => `| ${cells.join(" | ")} |\n`;
  let out = sheet.title ? `**${markdownEscape(sheet.title)}**\n\n` : "";
  // Markdown has no spanning headings.
  out += line(sheet.columns.map((c) => markdownEscape(c.group ? `${c.group}, ${c.title}` : c.title)));
  out += line(sheet.columns.map((c) => (c.right ? "---:" : "---")));
  for (const row of sheet.rows) out += line(row.map(markdownEscape));
  if (sheet.footer.length > 0) out += "\n";
  for (const text of sheet.footer) out += `${markdownEscape(text)}  \n`;
  return out;
}

const LATEX: Record<string, string> = {
  "\\": "\\textbackslash{}", "&": "\\&", "%": "\\%", "$": "\\$", "#": "\\#", "_": "\\_", "{": "\\{", "}": "\\}",
  "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "<": "\\textless{}", ">": "\\textgreater{}", "±": "$\\pm$", "−": "$-$",
};
export function latexEscape(text: string): string {
  return text.replace(/[\\&%$#_{}~^<>±−]/g, (c) => LATEX[c] ?? c);
}

export function toLatex(sheet: Sheet): string {
  let out = "% needs \\usepackage{booktabs}\n";
  if (sheet.title) out += `% ${oneLine(sheet.title)}\n`;
  out += `\\begin{tabular}{${sheet.columns.map((c) => (c.right ? "r" : "l")).join("")}}\n\\toprule\n`;
  if (hasGroups(sheet)) {
    const all = spans(sheet.columns);
    out += all.map((s) => `\\multicolumn{${s.end - s.begin}}{c}{${latexEscape(s.group)}}`).join(" & ") + " \\\\\n";
    out += all.filter((s) => s.group).map((s) => `\\cmidrule(lr){${s.begin + 1}-${s.end}}`).join("") + "\n";
  }
  out += sheet.columns.map((c) => latexEscape(c.title)).join(" & ") + " \\\\\n\\midrule\n";
  for (const row of sheet.rows) out += row.map((cell) => latexEscape(oneLine(cell))).join(" & ") + " \\\\\n";
  out += "\\bottomrule\n\\end{tabular}\n";
  for (const text of sheet.footer) out += `% ${oneLine(text)}\n`;
  return out;
}

// RFC 4180 with a header line. Numbers must come as text where their text matters (tables/format.ts, shortest).
export function toCsv(records: Records): string {
  const quote = (cell: CsvCell) => {
    const text = cell === null || cell === undefined ? "" : String(cell);
    return /[,"\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  };
  return [records.columns, ...records.rows].map((row) => row.map(quote).join(",") + "\n").join("");
}

// Sheets below each other, as the command line prints them.
export function joined(sheets: readonly Sheet[], print: (sheet: Sheet) => string): string {
  return sheets.map(print).join("\n");
}
