#include "base/hash.h"

#include <openssl/evp.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace ablate {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  CHECK_EQ(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr), 1);
}
Sha256::~Sha256() = default;

void Sha256::Update(const void* data, size_t size) { CHECK_EQ(EVP_DigestUpdate(state_->context, data, size), 1); }

std::string Sha256::HexDigest() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  CHECK_EQ(EVP_DigestFinal_ex(state_->context, digest, &length), 1);
  static constexpr char kHex[] = "0123456789abcdef";
  std::string hex(2 * length, '0');
  for (unsigned int i = 0; i < length; ++i) {
    hex[2 * i] = kHex[digest[i] >> 4];
    hex[2 * i + 1] = kHex[digest[i] & 15];
  }
  return hex;
}

std::string Sha256Hex(std::string_view data) {
  Sha256 hash;
  hash.Update(data.data(), data.size());
  return hash.HexDigest();
}

absl::StatusOr<std::string> Sha256HexOfFile(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) {
    return absl::NotFoundError(absl::StrCat("cannot open ", path, ": ", std::strerror(errno)));
  }
  Sha256 hash;
  std::vector<char> buffer(1 << 20);
  size_t count = 0;
  while ((count = std::fread(buffer.data(), 1, buffer.size(), file)) > 0) hash.Update(buffer.data(), count);
  const bool failed = std::ferror(file) != 0;
  std::fclose(file);
  if (failed) return absl::UnavailableError(absl::StrCat("cannot read ", path));
  return hash.HexDigest();
}

bool IsSha256Hex(std::string_view text) {
  if (text.size() != 64) return false;
  for (char c : text) {
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
  }
  return true;
}

}  // namespace ablate
