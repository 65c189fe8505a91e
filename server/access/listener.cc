#include "server/access/listener.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/client_access.h"
#include "base/files.h"
#include "base/host_port.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace ablate {
namespace {

// Names of this machine, for clients that check them (--tls-ca with the certificate itself).
std::vector<std::string> OwnNames(const std::string& listen) {
  std::vector<std::string> names = {"localhost", "127.0.0.1"};
  char host[256] = "";
  if (::gethostname(host, sizeof(host) - 1) == 0 && host[0] != '\0') names.emplace_back(host);
  if (const absl::StatusOr<HostPort> at = ParseHostPort(listen);
      at.ok() && at->host != "0.0.0.0" && at->host != "::")
    names.push_back(at->host);
  return names;
}

absl::StatusOr<KeyAndCertificate> ReadPair(const std::string& key_path, const std::string& certificate_path) {
  struct stat info = {};
  if (::stat(key_path.c_str(), &info) != 0) return FileError("cannot read", key_path, errno);
  // A group may share it (ssl-cert of Debian's).
  if ((info.st_mode & 007) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("the private key ", key_path, " can be read by everybody: `chmod 600 ", key_path, "`"));
  }
  KeyAndCertificate pair;
  ABLATE_ASSIGN_OR_RETURN(pair.key_pem, ReadFile(key_path));
  ABLATE_ASSIGN_OR_RETURN(pair.certificate_pem, ReadFile(certificate_path));
  if (const absl::Status status = CheckKeyAndCertificate(pair); !status.ok())
    return absl::InvalidArgumentError(absl::StrCat(certificate_path, ", ", key_path, ": ", status.message()));
  return pair;
}

absl::StatusOr<KeyAndCertificate> OwnPair(const std::string& data_dir, const std::string& listen) {
  const std::string dir = JoinPath(data_dir, "tls");
  const std::string key = JoinPath(dir, "key.pem"), certificate = JoinPath(dir, "certificate.pem");
  if (!FileExists(certificate) || !FileExists(key)) {
    ABLATE_ASSIGN_OR_RETURN(const KeyAndCertificate made, MakeSelfSignedCertificate(OwnNames(listen)));
    ABLATE_RETURN_IF_ERROR(MakeDirs(dir));
    if (::chmod(dir.c_str(), 0700) != 0) return FileError("cannot close to others", dir, errno);
    // The certificate comes last: where it is, its key is.
    ABLATE_RETURN_IF_ERROR(RemoveFile(certificate));
    ABLATE_RETURN_IF_ERROR(WriteFileAtomic(key, made.key_pem, 0600));
    ABLATE_RETURN_IF_ERROR(WriteFileAtomic(certificate, made.certificate_pem));
    LOG(INFO) << "made a certificate in " << dir << "; remove the folder and start again for a new one";
  }
  return ReadPair(key, certificate);
}

}  // namespace

absl::Status CheckListenerFlags(const ListenerFlags& flags) {
  if (flags.tls_cert.empty() == flags.tls_key.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("--tls-cert and --tls-key belong together: a certificate and its private key");
}

absl::StatusOr<ListenerSecurity> SecureListener(const ListenerFlags& flags, const std::string& data_dir) {
  ABLATE_RETURN_IF_ERROR(CheckListenerFlags(flags));
  ListenerSecurity security;
  const bool is_local = IsLocalAddress(flags.listen);
  security.tls = !is_local || flags.tls || !flags.tls_cert.empty() || !flags.tls_client_ca.empty();
  security.tokens = security.tls || flags.require_tokens;
  if (!security.tls) return security;
  ABLATE_ASSIGN_OR_RETURN(security.identity, flags.tls_cert.empty() ? OwnPair(data_dir, flags.listen)
                                                                    : ReadPair(flags.tls_key, flags.tls_cert));
  ABLATE_ASSIGN_OR_RETURN(security.fingerprint, CertificateFingerprint(security.identity.certificate_pem));
  if (!flags.tls_client_ca.empty()) {
    ABLATE_ASSIGN_OR_RETURN(security.client_ca_pem, ReadFile(flags.tls_client_ca));
    if (const absl::Status status = CertificateFingerprint(security.client_ca_pem).status(); !status.ok())
      return absl::InvalidArgumentError(absl::StrCat("--tls-client-ca ", flags.tls_client_ca, ": ", status.message()));
  }
  return security;
}

}  // namespace ablate
