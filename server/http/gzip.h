// gzip in memory. Thread rule: free functions.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace ablate {

std::string Gzip(std::string_view bytes, int level);
// Of one gzip stream below 4 GiB, which says its size at its end: for what we have made ourselves. DataLoss: damaged.
absl::StatusOr<std::string> Gunzip(std::string_view gzipped);
// Whether `accept_encoding`, as a request has it, takes gzip.
bool AcceptsGzip(std::string_view accept_encoding);

}  // namespace ablate
