#include "base/utf8.h"

namespace ablate {

bool IsUtf8(std::string_view text) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  for (size_t i = 0; i < text.size();) {
    const unsigned char lead = bytes[i++];
    if (lead < 0x80) continue;
    const int more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
    if (lead < 0xc2 || lead > 0xf4) return false;
    for (int k = 0; k < more; ++k, ++i) {
      if (i >= text.size() || (bytes[i] & 0xc0) != 0x80) return false;
      // Overlong forms, surrogates, beyond U+10FFFF.
      if (k == 0 && ((lead == 0xe0 && bytes[i] < 0xa0) || (lead == 0xed && bytes[i] > 0x9f) ||
                     (lead == 0xf0 && bytes[i] < 0x90) || (lead == 0xf4 && bytes[i] > 0x8f))) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace ablate
