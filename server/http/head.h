// The head of a request before anything parses it in earnest: bounded, and free of all that two readers could
// understand differently. Must not know sockets. Thread rule: free functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ablate {

inline constexpr size_t kMaxHttpHeadBytes = 64 << 10;
inline constexpr size_t kMaxHttpLineBytes = 8000;
inline constexpr int kMaxHttpHeaders = 100;
inline constexpr int64_t kMaxHttpBodyBytes = 1 << 20;

struct HttpHead {
  int status = 0;          // not 0: refused with this one, and `message` says why
  std::string message;
  std::string text;        // what goes on: without the headers that are ignored (Range, Cookie)
  int64_t body_bytes = 0;  // Content-Length
};

// How many bytes of `received` are a whole head, with its empty line; 0: it is not whole yet. `from`: where the last
// search ended.
size_t FindHeadEnd(std::string_view received, size_t from);

// Whether a line ends with CR or LF alone, in what came of a head that is not whole yet. `from`: as FindHeadEnd.
bool HasBareLineEnd(std::string_view received, size_t from);

// `head` as FindHeadEnd delimits it. 400: no request line of HTTP/1.0 or 1.1, control characters, bare line ends, continued lines, a
// repeated or strange Content-Length; 411: a body without a length beforehand; 413, 414, 431: too long.
HttpHead ScanHead(std::string_view head);

}  // namespace ablate
