// How the page is built (`npm run build`, or CMake's target `dashboard`), served while one works on it (`npm run dev`, with
// ABLATE_SERVER=http://127.0.0.1:PORT naming a running `ablate-server --http`), and tested (`npm test`).
import { readFileSync, readdirSync } from "node:fs";
import { join, sep } from "node:path";
import { defineConfig, type Plugin } from "vite";

// The licences of the packages whose code is in the bundle, served as /licenses.txt. A package without one fails the build.
function licenses(): Plugin {
  return {
    name: "ablate-licenses",
    apply: "build",
    generateBundle(_options, bundle) {
      const roots = new Set<string>();
      for (const chunk of Object.values(bundle)) {
        if (chunk.type !== "chunk") continue;
        for (const id of Object.keys(chunk.modules)) {
          const root = /^\0?(.*\/node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(id.replaceAll(sep, "/"))?.[1];
          if (root) roots.add(root);
        }
      }
      const parts = [...roots].sort().map((root) => {
        const { name, version, license } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
        const file = readdirSync(root).find((entry) => /^(licen[cs]e|copying)/i.test(entry));
        if (!file) this.error(`${name} ${version} has no licence file in ${root}`);
        return `${name} ${version} (${license})\n\n${readFileSync(join(root, file), "utf8").trim()}\n`;
      });
      const rule = `\n${"-".repeat(80)}\n\n`;
      this.emitFile({
        type: "asset",
        fileName: "licenses.txt",
        source: `The dashboard of Ablate contains code of these packages.\n${rule}${parts.join(rule)}`,
      });
    },
  };
}

const server = process.env.ABLATE_SERVER ?? "http://127.0.0.1:7480";

export default defineConfig({
  plugins: [licenses()],
  build: {
    target: "es2020",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0, // no data: addresses; the page's policy is default-src 'self'
    chunkSizeWarningLimit: 600,
    reportCompressedSize: false,
  },
  server: {
    // The server answers only to its own name, and takes a POST only from its own page.
    proxy: {
      "/api": {
        target: server,
        changeOrigin: true,
        configure: (proxy) => proxy.on("proxyReq", (request) => request.removeHeader("origin")),
      },
    },
  },
  test: { environment: "node", include: ["src/**/*.test.ts", "src/**/*.test.tsx"] },
} as Parameters<typeof defineConfig>[0]);
