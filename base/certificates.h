// X.509 certificates as TLS needs them: a self-signed one, and the fingerprint by which it is pinned. Must not know gRPC.
// Thread rule: free functions without state.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace ablate {

struct KeyAndCertificate {
  std::string key_pem;
  std::string certificate_pem;
};

// A fresh P-256 key and a certificate for it that it signs itself: for servers and clients of TLS, valid from a day ago for ten
// years, with these names (IP addresses and DNS names) as subject alternative names.
absl::StatusOr<KeyAndCertificate> MakeSelfSignedCertificate(const std::vector<std::string>& names);

// "sha256:" and 64 lower-case hex digits, of the DER form of the first certificate in `pem`. InvalidArgument: there is
// none.
absl::StatusOr<std::string> CertificateFingerprint(std::string_view pem);

// "sha256:AB:CD..." in any case, with or without colons and prefix, as CertificateFingerprint writes it.
// InvalidArgument: not 64 hex digits.
absl::StatusOr<std::string> ParseFingerprint(std::string_view text);

// InvalidArgument: not a PEM certificate and the private key that belongs to it.
absl::Status CheckKeyAndCertificate(const KeyAndCertificate& pair);

}  // namespace ablate
