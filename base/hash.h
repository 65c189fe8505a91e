// SHA-256, the only content hash of the product. Digests are 64 lower-case hex digits.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace ablate {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Update(const void* data, size_t size);
  // May be called once.
  std::string HexDigest();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string Sha256Hex(std::string_view data);

// Streams the file. NotFound: no such file. Unavailable: read error.
absl::StatusOr<std::string> Sha256HexOfFile(const std::string& path);

// Whether `text` has the form of a digest: exactly 64 lower-case hex digits. Check before using one in a path.
bool IsSha256Hex(std::string_view text);

}  // namespace ablate
