// How a client (CLI, worker) finds a coordinator and proves itself: address, token, and by what it knows the server.
// From flags, else the environment, else the user's configuration file. Must not know gRPC.
// Secrets never come from the command line, which every process of the machine can read, and never go into a message.
// Thread rule: free functions; the environment must not be changed meanwhile.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace ablate {

struct ClientAccess {
  std::string address;          // HOST:PORT or unix:PATH
  std::string token;            // "": none
  std::string pin;              // "sha256:...": the server's certificate; "": none
  std::string ca_pem;           // or: who signed it
  std::string certificate_pem;  // of this client, with its key; "": none
  std::string key_pem;

  // The server is spoken to over TLS.
  bool tls() const { return !pin.empty() || !ca_pem.empty(); }
};

// Values of flags as given; "" where one is not.
struct ClientAccessFlags {
  std::string server;       // --server, $ABLATE_SERVER
  std::string token_file;   // --token-file, $ABLATE_TOKEN (the token itself), $ABLATE_TOKEN_FILE
  std::string tls_pin;      // --tls-pin, $ABLATE_TLS_PIN
  std::string tls_ca;       // --tls-ca, $ABLATE_TLS_CA
  std::string tls_cert;     // --tls-cert, $ABLATE_TLS_CERT
  std::string tls_key;      // --tls-key, $ABLATE_TLS_KEY
};

// Reads everything. The configuration file ($XDG_CONFIG_HOME/ablate/config, ~/.config/ablate/config; lines "name = value"
// with the names server, token, token_file, tls_pin, tls_ca, tls_cert, tls_key) belongs to the server that it names: it
// counts only where no other server is named. `otherwise` is the address when nobody names one.
// InvalidArgument: no token in the file, no fingerprint, a certificate without its key, TLS settings of both kinds, an
// address of another machine without any (a token would cross the network in the clear). PermissionDenied: a file with
// a token or a key can be read by others. As FileError: a file cannot be read.
absl::StatusOr<ClientAccess> ReadClientAccess(const ClientAccessFlags& flags, const std::string& otherwise);

// The token out of this process's environment, where other processes of the user could read it and children inherit it.
void ForgetTokenInEnvironment();

// Whether only this machine can reach `address`: unix:, localhost, 127.0.0.0/8, [::1].
bool IsLocalAddress(const std::string& address);

// Whether `text` has the form of a token: "ablate_" and 43 characters of base64url.
bool IsToken(const std::string& text);

}  // namespace ablate
