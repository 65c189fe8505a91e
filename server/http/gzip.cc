#include "server/http/gzip.h"

#include <zlib.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/strings.h"

namespace ablate {
namespace {

constexpr int kGzipWindow = 15 + 16;

Bytef* Bytes(const char* bytes) { return reinterpret_cast<Bytef*>(const_cast<char*>(bytes)); }

}  // namespace

std::string Gzip(std::string_view bytes, int level) {
  z_stream stream = {};
  ::deflateInit2(&stream, level, Z_DEFLATED, kGzipWindow, 8, Z_DEFAULT_STRATEGY);
  std::string out(::deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = Bytes(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = Bytes(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  ::deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  ::deflateEnd(&stream);
  return out;
}

absl::StatusOr<std::string> Gunzip(std::string_view gzipped) {
  size_t size = 0;
  for (size_t i = 1; i <= 4 && i <= gzipped.size(); ++i)
    size = size << 8 | static_cast<unsigned char>(gzipped[gzipped.size() - i]);
  // deflate packs no more than this.
  if (size / 1032 > gzipped.size()) return absl::DataLossError("a compressed file of the program is damaged");
  z_stream stream = {};
  if (::inflateInit2(&stream, kGzipWindow) != Z_OK) return absl::InternalError("zlib does not start");
  std::string out(size, '\0');
  stream.next_in = Bytes(gzipped.data());
  stream.avail_in = static_cast<uInt>(gzipped.size());
  stream.next_out = Bytes(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int result = ::inflate(&stream, Z_FINISH);
  const bool whole = result == Z_STREAM_END && stream.total_out == size;
  ::inflateEnd(&stream);
  if (!whole) return absl::DataLossError("a compressed file of the program is damaged");
  return out;
}

bool AcceptsGzip(std::string_view accept_encoding) {
  for (const absl::string_view item : absl::StrSplit(ToAbsl(accept_encoding), ',')) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(item, absl::MaxSplits(';', 1));
    const absl::string_view name = absl::StripAsciiWhitespace(parts.first);
    if (!absl::EqualsIgnoreCase(name, "gzip") && name != "*") continue;
    const absl::string_view weight = absl::StripAsciiWhitespace(parts.second);
    double q = 1;
    if (absl::StartsWithIgnoreCase(weight, "q=") && !absl::SimpleAtod(weight.substr(2), &q)) return false;
    return q > 0;
  }
  return false;
}

}  // namespace ablate
