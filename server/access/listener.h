// What a listener demands of its callers, decided from its flags: TLS with which certificate, tokens or not.
// Must not know gRPC. Thread rule: free functions.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/certificates.h"

namespace ablate {

struct ListenerFlags {
  std::string listen;
  bool tls = false;             // also where only this machine reaches it
  bool require_tokens = false;  // likewise
  std::string tls_cert, tls_key;
  std::string tls_client_ca;
};

struct ListenerSecurity {
  bool tls = false;
  bool tokens = false;        // else every caller is an admin: only this machine reaches it
  KeyAndCertificate identity;
  std::string fingerprint;    // of identity
  std::string client_ca_pem;  // "": clients need no certificate
};

// InvalidArgument: flags that do not go together. Looks at no file.
absl::Status CheckListenerFlags(const ListenerFlags& flags);

// A listener that other machines can reach has TLS and demands tokens, whatever the flags; TLS elsewhere demands tokens,
// too. Without --tls-cert the certificate of data_dir/tls/ is used, made at the first time (key 0600). InvalidArgument:
// flags that do not go together, no certificate. PermissionDenied: the key can be read by others. As FileError.
absl::StatusOr<ListenerSecurity> SecureListener(const ListenerFlags& flags, const std::string& data_dir);

}  // namespace ablate
