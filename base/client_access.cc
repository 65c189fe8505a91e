#include "base/client_access.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/certificates.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace ablate {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;
constexpr size_t kTokenBytes = 7 + 43;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

const std::string& FirstOf(const std::string& a, const std::string& b) { return a.empty() ? b : a; }

std::string ConfigPath() {
  const std::string config = Environment("XDG_CONFIG_HOME"), home = Environment("HOME");
  if (absl::StartsWith(config, "/")) return JoinPath(config, "ablate/config");
  if (absl::StartsWith(home, "/")) return JoinPath(home, ".config/ablate/config");
  return "";
}

// What others may read is no secret.
absl::StatusOr<std::string> ReadSecretFile(const std::string& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) return FileError("cannot read", path, errno);
  if (S_ISREG(info.st_mode) && (info.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(path, " holds a secret and others may read it: `chmod 600 ", path, "`"));
  }
  return ReadFile(path);
}

absl::StatusOr<std::string> ReadPem(const std::string& path) {
  if (path.empty()) return std::string();
  ABLATE_ASSIGN_OR_RETURN(std::string pem, ReadFile(path));
  if (pem.size() > kMaxFileBytes) return absl::InvalidArgumentError(absl::StrCat(path, " is over 1 MiB: no certificate"));
  return pem;
}

absl::StatusOr<std::string> ReadTokenFile(const std::string& path) {
  ABLATE_ASSIGN_OR_RETURN(std::string token, ReadSecretFile(path));
  absl::StripAsciiWhitespace(&token);
  if (!IsToken(token))
    return absl::InvalidArgumentError(absl::StrCat(path, " holds no token (\"ablate_\" and 43 characters)"));
  return token;
}

// Lines "name = value"; "#" begins a comment line.
absl::StatusOr<std::map<std::string, std::string>> ReadConfig(const std::string& path) {
  static const auto& names =
      *new std::vector<std::string>{"server", "token", "token_file", "tls_pin", "tls_ca", "tls_cert", "tls_key"};
  std::map<std::string, std::string> values;
  if (path.empty() || !FileExists(path)) return values;
  ABLATE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    const absl::string_view stripped = absl::StripAsciiWhitespace(line);
    if (stripped.empty() || stripped[0] == '#') continue;
    const size_t equals = stripped.find('=');
    const std::string name(absl::StripAsciiWhitespace(stripped.substr(0, equals)));
    // The value may be a secret: it is not repeated.
    if (equals == absl::string_view::npos)
      return absl::InvalidArgumentError(absl::StrCat(path, ":", number, ": expected NAME = VALUE"));
    if (std::find(names.begin(), names.end(), name) == names.end())
      return absl::InvalidArgumentError(absl::StrCat(path, ":", number, ": unknown name", DidYouMean(name, names)));
    values[name] = std::string(absl::StripAsciiWhitespace(stripped.substr(equals + 1)));
  }
  if (values.count("token") > 0) {
    ABLATE_RETURN_IF_ERROR(ReadSecretFile(path).status());
    if (!IsToken(values["token"])) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": what it gives as `token` is none (\"ablate_\" and 43 characters)"));
    }
  }
  return values;
}

}  // namespace

bool IsLocalAddress(const std::string& address) {
  if (absl::StartsWith(address, "unix:")) return true;
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return false;
  const std::string host = address.substr(0, colon);
  if (host == "localhost" || host == "[::1]") return true;
  return absl::StartsWith(host, "127.") && host.find_first_not_of("0123456789.") == std::string::npos;
}

bool IsToken(const std::string& text) {
  if (text.size() != kTokenBytes || !absl::StartsWith(text, "ablate_")) return false;
  for (const char c : text) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_') return false;
  }
  return true;
}

void ForgetTokenInEnvironment() {
  // /proc/self/environ shows the bytes at their first place whatever unsetenv does.
  if (char* value = std::getenv("ABLATE_TOKEN"); value != nullptr) ::explicit_bzero(value, std::strlen(value));
  ::unsetenv("ABLATE_TOKEN");
}

absl::StatusOr<ClientAccess> ReadClientAccess(const ClientAccessFlags& flags, const std::string& otherwise) {
  ABLATE_ASSIGN_OR_RETURN(auto config, ReadConfig(ConfigPath()));
  ClientAccess access;
  access.address = FirstOf(flags.server, Environment("ABLATE_SERVER"));
  // A token must not go to a server that it was not meant for.
  if (!access.address.empty() && access.address != config["server"]) config.clear();
  if (access.address.empty()) access.address = FirstOf(config["server"], otherwise);

  if (access.address.empty()) {
    return absl::InvalidArgumentError(
        "--server is missing (and ABLATE_SERVER is not set): host:port or unix:PATH of an ablate-server");
  }

  const std::string token = Environment("ABLATE_TOKEN");
  if (!flags.token_file.empty()) {
    ABLATE_ASSIGN_OR_RETURN(access.token, ReadTokenFile(flags.token_file));
  } else if (!token.empty()) {
    if (!IsToken(token)) return absl::InvalidArgumentError("ABLATE_TOKEN is no token (\"ablate_\" and 43 characters)");
    access.token = token;
  } else if (const std::string file = Environment("ABLATE_TOKEN_FILE"); !file.empty()) {
    ABLATE_ASSIGN_OR_RETURN(access.token, ReadTokenFile(file));
  } else if (!config["token"].empty()) {
    access.token = config["token"];
  } else if (!config["token_file"].empty()) {
    ABLATE_ASSIGN_OR_RETURN(access.token, ReadTokenFile(config["token_file"]));
  }

  std::string pin = flags.tls_pin, ca = flags.tls_ca;
  if (pin.empty() && ca.empty()) pin = Environment("ABLATE_TLS_PIN"), ca = Environment("ABLATE_TLS_CA");
  if (pin.empty() && ca.empty()) pin = config["tls_pin"], ca = config["tls_ca"];
  if (!pin.empty() && !ca.empty()) {
    return absl::InvalidArgumentError(
        "--tls-pin and --tls-ca exclude each other: the one knows the server by its certificate, the other by who signed it");
  }
  if (!pin.empty()) {
    absl::StatusOr<std::string> parsed = ParseFingerprint(pin);
    if (!parsed.ok()) return absl::InvalidArgumentError(absl::StrCat("--tls-pin ", parsed.status().message()));
    access.pin = *std::move(parsed);
  }
  if (!ca.empty()) {
    ABLATE_ASSIGN_OR_RETURN(access.ca_pem, ReadPem(ca));
    if (const absl::Status status = CertificateFingerprint(access.ca_pem).status(); !status.ok())
      return absl::InvalidArgumentError(absl::StrCat("--tls-ca ", ca, ": ", status.message()));
  }

  const std::string certificate = FirstOf(flags.tls_cert, FirstOf(Environment("ABLATE_TLS_CERT"), config["tls_cert"]));
  const std::string key = FirstOf(flags.tls_key, FirstOf(Environment("ABLATE_TLS_KEY"), config["tls_key"]));
  if (certificate.empty() != key.empty())
    return absl::InvalidArgumentError("--tls-cert and --tls-key belong together: a client's certificate and its key");
  if (!certificate.empty()) {
    ABLATE_ASSIGN_OR_RETURN(access.certificate_pem, ReadPem(certificate));
    ABLATE_ASSIGN_OR_RETURN(access.key_pem, ReadSecretFile(key));
    if (const absl::Status status = CheckKeyAndCertificate({access.key_pem, access.certificate_pem}); !status.ok())
      return absl::InvalidArgumentError(absl::StrCat("--tls-cert ", certificate, ", --tls-key ", key, ": ", status.message()));
  }
  if (!IsLocalAddress(access.address) && !access.tls()) {
    return absl::InvalidArgumentError(absl::StrCat(
        access.address, " is another machine, and nothing says by what to know it: give --tls-pin sha256:... (or "
                        "ABLATE_TLS_PIN) as ablate-server prints it at its start, or --tls-ca FILE"));
  }
  return access;
}

}  // namespace ablate
