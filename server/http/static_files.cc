#include "server/http/static_files.h"

#include <utility>

#include "server/http/gzip.h"

namespace ablate {
namespace {

constexpr std::string_view kAssets = "/assets/";

constexpr std::pair<std::string_view, std::string_view> kMediaTypes[] = {
    {".html", "text/html; charset=utf-8"},     {".js", "text/javascript; charset=utf-8"},
    {".css", "text/css; charset=utf-8"},       {".svg", "image/svg+xml"},
    {".png", "image/png"},                     {".ico", "image/x-icon"},
    {".json", "application/json"},             {".txt", "text/plain; charset=utf-8"},
    {".woff2", "font/woff2"},                  {".webmanifest", "application/manifest+json"},
};

bool IsAsset(std::string_view path) { return path.substr(0, kAssets.size()) == kAssets; }

const EmbeddedFile* FileAt(std::span<const EmbeddedFile> files, std::string_view path) {
  for (const EmbeddedFile& file : files) {
    if (file.path == path) return &file;
  }
  return nullptr;
}

}  // namespace

const EmbeddedFile* StaticFiles::Find(std::string_view path) const {
  const EmbeddedFile* const file = FileAt(files_, path);
  return file == nullptr && !IsFileName(path) ? FileAt(files_, "/index.html") : file;
}

bool IsFileName(std::string_view path) {
  return IsAsset(path) || (path.find('/', 1) == std::string_view::npos && path.find('.') != std::string_view::npos);
}

bool IsImmutable(const EmbeddedFile& file) { return IsAsset(file.path); }

std::string MediaType(std::string_view path) {
  for (const auto& [ending, type] : kMediaTypes) {
    if (path.size() >= ending.size() && path.substr(path.size() - ending.size()) == ending) return std::string(type);
  }
  return "application/octet-stream";
}

absl::StatusOr<std::string> PlainBytes(const EmbeddedFile& file) {
  return file.gzipped ? Gunzip(file.bytes) : std::string(file.bytes);
}

std::string_view FallbackPage() {
  return R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Ablate: the page was not built</title>
<style>
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 42rem; margin: 3rem auto; padding: 0 1rem; }
pre { padding: .8rem 1rem; border: 1px solid currentColor; border-radius: .4rem; overflow-x: auto; }
</style>
</head>
<body>
<h1>The page was not built</h1>
<p>This <code>ablate-server</code> was built on a machine without Node.js 18 or newer and npm, so it has no dashboard
inside. Everything else works. To get the page, install them, configure and build again, and start the server again:</p>
<pre>sudo apt-get install nodejs npm
cmake --preset release
cmake --build --preset release --target ablate-server</pre>
<p>Until then the same numbers come from the command line (<code>ablate sweep list</code>, <code>ablate table SWEEP</code>)
and as JSON: <a href="/api/v1/sweeps">/api/v1/sweeps</a>.</p>
</body>
</html>
)";
}

}  // namespace ablate
