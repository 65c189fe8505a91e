import { describe, expect, it } from "vitest";
import { jobPath, matchPath, sweepPath } from "./router";

describe("matchPath", () => {
  it("takes named parts, decoded", () => {
    expect(matchPath("/jobs/:job", "/jobs/a%2Fb")).toEqual({ job: "a/b" });
    expect(matchPath("/sweeps/:sweep", "/sweeps/p.15/")).toEqual({ sweep: "p.15" });
    expect(matchPath("/", "/")).toEqual({});
  });
  it("refuses what differs or is no address", () => {
    expect(matchPath("/jobs/:job", "/jobs")).toBeUndefined();
    expect(matchPath("/jobs/:job", "/jobs/1/2")).toBeUndefined();
    expect(matchPath("/workers", "/Workers")).toBeUndefined();
    expect(matchPath("/jobs/:job", "/jobs/%E0%A4%A")).toBeUndefined();
  });
  it("reads back what the paths of pages are made of", () => {
    for (const name of ["a", "p=3 q", "100%", "ä/ö?#&", "../x"]) {
      expect(matchPath("/sweeps/:sweep", sweepPath(name))).toEqual({ sweep: name });
      expect(matchPath("/jobs/:job", jobPath(name))).toEqual({ job: name });
    }
  });
});
