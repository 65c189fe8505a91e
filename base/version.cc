#include "base/version.h"

namespace ablate {

const char* BuildVersion() { return ABLATE_VERSION; }

}  // namespace ablate
