// types.ts, which is written by hand, against the protos: every field and every name of an enum, of the right kind of value.
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";

const without = (text: string): string => text.replace(/\/\/.*$/gm, "");
const proto = ["resources", "coordinator"].map((name) => without(readFileSync(new URL(`../../../proto/${name}.proto`, import.meta.url), "utf8"))).join("\n");
const types = without(readFileSync(new URL("./types.ts", import.meta.url), "utf8"));

interface Field { type: string; repeated: boolean; optional: boolean }
const messages = new Map<string, Record<string, Field>>(); // "GetGridResponse.Arm"
const enums = new Map<string, string[]>();                 // "DataRef.Format"

// One pass over the statements: what opens a block, what ends one, and what stands in it.
function readProto(): void {
  const open: { kind: string; name: string }[] = [];
  for (const [statement] of proto.matchAll(/[^;{}]*[;{}]/g)) {
    const text = statement.replace(/\s+/g, " ").trim();
    const opens = /^(?:.*\b)?(message|enum|oneof|service|rpc) (\w+).*\{$/.exec(text);
    if (opens) {
      const [, kind = "", name = ""] = opens;
      const inside = open.filter((one) => one.kind === "message").map((one) => one.name);
      open.push({ kind, name: kind === "message" || kind === "enum" ? [...inside.slice(-1), name].join(".") : name });
      if (kind === "message") messages.set(open.at(-1)!.name, {});
      if (kind === "enum") enums.set(open.at(-1)!.name, []);
      continue;
    }
    if (text.endsWith("}")) {
      open.pop();
      continue;
    }
    const block = open.at(-1);
    const value = /^(\w+) = \d+;$/.exec(text);
    if (block?.kind === "enum" && value) enums.get(block.name)!.push(value[1]!);
    const field = /^(repeated |optional )?(\w+) (\w+) = \d+;$/.exec(text);
    const message = open.filter((one) => one.kind === "message").at(-1)?.name;
    if (message && field && block?.kind !== "enum")
      messages.get(message)![field[3]!] = { type: field[2]!, repeated: field[1] === "repeated ", optional: field[1] === "optional " || block?.kind === "oneof" };
  }
}
readProto();

// Interfaces and unions of types.ts whose names differ from the proto's, and what the page alone has.
const RENAMED: Record<string, string> = {
  GridArm: "GetGridResponse.Arm", GridCell: "GetGridResponse.Cell", JobEvent: "GetJobLogsResponse.Event", TunedTry: "TunedArm.Try", Verdict: "VerdictKind",
};
const NO_MESSAGE = ["Me"]; // of server/http alone
const SCALARS: Record<string, string> = { string: "string", bool: "boolean", int32: "number", uint32: "number", int64: "Int64", uint64: "Int64", fixed64: "Int64", double: "Double" };
const names = (union: string): string[] => [...union.matchAll(/"(\w+)"/g)].map((match) => match[1]!);

interface Member { name: string; optional: boolean; type: string }
const interfaces = new Map<string, Member[]>([...types.matchAll(/^export interface (\w+) \{([^}]*)\}/gm)].map(([, name, body]) =>
  [name!, [...body!.matchAll(/(\w+)(\??): ([^;]+?)\s*(?:;|$)/g)].map((match) => ({ name: match[1]!, optional: match[2] === "?", type: match[3]! }))]));
const unions = new Map<string, string[]>([...types.matchAll(/^export type (\w+) =([^;]*);/gm)].filter(([, name]) => name !== "Double" && name !== "Int64")
  .map(([, name, union]) => [name!, names(union!)]));
const messageOf = (name: string): string => RENAMED[name] ?? name;

describe("the protos", () => {
  it("are read whole", () => {
    expect(messages.size).toBeGreaterThan(80);
    expect(Object.keys(messages.get("ConfidenceRow")!).length).toBe(24);
    expect(Object.keys(messages.get("Value")!)).toEqual(["number", "text", "flag"]);
    expect(messages.get("Value")!.number).toEqual({ type: "double", repeated: false, optional: true });
    expect(messages.get("GetGridResponse.Cell")!.failure).toEqual({ type: "FailureKind", repeated: false, optional: false });
    expect(enums.get("Verification.Result")).toContain("OTHER_DEVICE");
    expect(interfaces.size).toBeGreaterThan(45);
    expect(unions.size).toBeGreaterThan(6);
  });
});

describe("types.ts", () => {
  it.each([...unions.keys()])("%s has the names of its enum", (name) => {
    expect([...unions.get(name)!].sort()).toEqual([...(enums.get(messageOf(name)) ?? [])].sort());
  });

  it.each([...interfaces.keys()].filter((name) => !NO_MESSAGE.includes(name)))("%s has the fields of its message", (name) => {
    const message = messageOf(name), fields = messages.get(message);
    expect(fields, `the message ${message}`).toBeDefined();
    expect(interfaces.get(name)!.map((member) => member.name).sort()).toEqual(Object.keys(fields!).sort());
    for (const { name: member, optional, type } of interfaces.get(name)!) {
      const field = fields![member]!, at = `${name}.${member}`;
      expect(type.endsWith("[]"), `${at} is repeated`).toBe(field.repeated);
      const one = type.replace(/\[\]$/, "");
      const scalar = SCALARS[field.type];
      const values = enums.get(`${message}.${field.type}`) ?? enums.get(field.type);
      if (scalar) expect(one, at).toBe(scalar);
      else if (values) expect((one === "string" ? values : unions.get(one) ?? names(one)).slice().sort(), at).toEqual([...values].sort());
      else expect([field.type, `${message}.${field.type}`], at).toContain(messageOf(one));
      // JSON leaves out what is absent: a scalar only where it may be; a message always may be.
      if (field.optional) expect(optional, `${at} may be absent`).toBe(true);
      else if (scalar || values || field.repeated) expect(optional, `${at} is always there`).toBe(false);
    }
  });
});
