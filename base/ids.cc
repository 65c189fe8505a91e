#include "base/ids.h"

#include <sys/random.h>

#include <cstdio>

namespace ablate {
namespace {

class RandomIdGenerator : public IdGenerator {
 public:
  std::string NewId(std::string_view prefix) override {
    uint64_t bits = 0;
    while (getrandom(&bits, sizeof(bits), 0) != sizeof(bits)) {
    }
    char hex[17];
    std::snprintf(hex, sizeof(hex), "%016llx", static_cast<unsigned long long>(bits));
    return std::string(prefix) + "_" + hex;
  }
};

}  // namespace

IdGenerator& IdGenerator::Random() {
  static RandomIdGenerator generator;
  return generator;
}

}  // namespace ablate
