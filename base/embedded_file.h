// A file that ablate_embed_files (cmake/ablate_embed.cmake) put into a program. Must not know what it is for.
// Thread rule: constant data.
#pragma once

#include <string_view>

namespace ablate {

struct EmbeddedFile {
  std::string_view path;    // within its folder, with a slash first: "/assets/index-B_t5z5oi.js"
  std::string_view bytes;   // as `gzipped` says
  bool gzipped = false;     // bytes are a gzip stream of the file
  std::string_view sha256;  // of the file, 64 lower-case hex digits
};

}  // namespace ablate
