// Against pages of other sites: a browser on the user's machine reaches what only that machine reaches, and a name can
// be bound to 127.0.0.1 by whoever owns it. So a request must name the server by a name of its own, and come from its own
// page. Must not know HTTP's listener. Thread rule: a checker is constant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace ablate {

class OriginChecker {
 public:
  // `address`: where the listener is to listen. `more_names`: of --http-host. `any_host`: the listener demands tokens, which no
  // browser sends by itself; its names are its operator's business.
  OriginChecker(const std::string& address, const std::vector<std::string>& more_names, bool any_host, bool tls);

  // `host` and `origin`: the headers, "" where there is none. PermissionDenied, with what to do.
  absl::Status Check(std::string_view host, bool has_origin, std::string_view origin) const;

 private:
  std::vector<std::string> names_;
  const bool any_host_;
  const bool tls_;
};

}  // namespace ablate
