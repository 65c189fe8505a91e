// Certificates, fingerprints, and what clients read from flags, environment and configuration file.
#include "base/client_access.h"

#include <sys/stat.h>

#include <cstdlib>
#include <map>
#include <string>

#include "base/certificates.h"
#include "base/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ablate {
namespace {

using testing::HasSubstr;
using testing::Not;

const char kToken[] = "ablate_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG";

class ClientAccessTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"ABLATE_SERVER", "ABLATE_TOKEN", "ABLATE_TOKEN_FILE", "ABLATE_TLS_PIN", "ABLATE_TLS_CA",
                             "ABLATE_TLS_CERT", "ABLATE_TLS_KEY"}) {
      ::unsetenv(name);
    }
    ::setenv("XDG_CONFIG_HOME", dir_.path().c_str(), 1);
    ASSERT_TRUE(MakeDirs(JoinPath(dir_.path(), "ablate")).ok());
  }
  std::string File(const std::string& name, const std::string& content, unsigned mode = 0600) {
    const std::string path = JoinPath(dir_.path(), name);
    EXPECT_TRUE(WriteFileAtomic(path, content, mode).ok());
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return path;
  }

  TempDir dir_;
};

TEST_F(ClientAccessTest, FlagsComeBeforeTheEnvironmentBeforeTheFile) {
  const std::string pin(64, 'a');
  EXPECT_EQ(ReadClientAccess({}, "127.0.0.1:7433")->address, "127.0.0.1:7433");
  File("ablate/config", std::string("# mine\nserver = gpu:7433\n token=") + kToken + "\ntls_pin = " + pin + "\n");
  auto access = ReadClientAccess({}, "127.0.0.1:7433");
  ASSERT_TRUE(access.ok()) << access.status();
  EXPECT_EQ(access->address, "gpu:7433");
  EXPECT_EQ(access->token, kToken);
  EXPECT_EQ(access->pin, "sha256:" + pin);
  // The file's token is for the file's server alone.
  access = ReadClientAccess({.server = "evil:7433", .tls_pin = pin}, "");
  ASSERT_TRUE(access.ok()) << access.status();
  EXPECT_EQ(access->token, "");
  EXPECT_EQ(ReadClientAccess({.server = "gpu:7433"}, "")->token, kToken);
  std::string other = kToken;
  other.back() = 'x';
  ::setenv("ABLATE_TOKEN", other.c_str(), 1);
  EXPECT_EQ(ReadClientAccess({}, "")->token, other);
  EXPECT_EQ(ReadClientAccess({.token_file = File("t", std::string(kToken) + "\n")}, "")->token, kToken);
  ForgetTokenInEnvironment();
  EXPECT_EQ(std::getenv("ABLATE_TOKEN"), nullptr);
}

TEST_F(ClientAccessTest, SecretsMustBeSecretAndAreNotRepeated) {
  const auto why = [](const ClientAccessFlags& flags) {
    const absl::Status status = ReadClientAccess(flags, "unix:/x").status();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("0123456789abcdefghij")));
    return std::string(status.message());
  };
  EXPECT_THAT(why({.token_file = File("open", kToken, 0644)}), HasSubstr("chmod 600"));
  EXPECT_THAT(why({.token_file = File("odd", std::string(kToken) + "x")}), HasSubstr("holds no token"));
  EXPECT_THAT(why({.token_file = "/nowhere/token"}), HasSubstr("/nowhere/token"));
  ::setenv("ABLATE_TOKEN", (std::string("x") + kToken).c_str(), 1);
  EXPECT_THAT(why({}), HasSubstr("ABLATE_TOKEN is no token"));
  ::unsetenv("ABLATE_TOKEN");
  File("ablate/config", std::string("tocken = ") + kToken);
  EXPECT_THAT(why({}), HasSubstr("config:1: unknown name"));
  File("ablate/config", std::string("token = ") + kToken, 0640);
  EXPECT_THAT(why({}), HasSubstr("chmod 600"));
}

TEST_F(ClientAccessTest, AnotherMachineIsReachedOverTlsOnly) {
  const auto status = [](const ClientAccessFlags& flags) { return ReadClientAccess(flags, "").status(); };
  EXPECT_THAT(std::string(status({.server = "gpu:7433"}).message()), HasSubstr("--tls-pin"));
  EXPECT_TRUE(status({.server = "127.0.0.1:7433"}).ok());
  EXPECT_TRUE(status({.server = "gpu:7433", .tls_pin = std::string(64, '0')}).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(status({.server = "gpu:7433", .tls_pin = "sha256:12"})));
  const KeyAndCertificate pair = *MakeSelfSignedCertificate({"gpu", "10.0.0.1"});
  const std::string certificate = File("c", pair.certificate_pem), key = File("k", pair.key_pem);
  EXPECT_TRUE(status({.server = "gpu:7433", .tls_ca = certificate}).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(status({.server = "gpu:7433", .tls_ca = key})));
  EXPECT_TRUE(absl::IsInvalidArgument(status({.tls_pin = std::string(64, '0'), .tls_ca = certificate})));
  EXPECT_TRUE(absl::IsInvalidArgument(status({.server = "unix:/x", .tls_cert = certificate})));
  EXPECT_TRUE(status({.server = "unix:/x", .tls_cert = certificate, .tls_key = key}).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(
      status({.server = "unix:/x", .tls_cert = certificate, .tls_key = File("k2", pair.key_pem, 0644)})));
}

TEST(Certificates, AreMadeAndPinned) {
  const auto pair = MakeSelfSignedCertificate({"localhost", "127.0.0.1", "::1"});
  ASSERT_TRUE(pair.ok()) << pair.status();
  EXPECT_TRUE(CheckKeyAndCertificate(*pair).ok());
  const auto other = MakeSelfSignedCertificate({});
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_TRUE(absl::IsInvalidArgument(CheckKeyAndCertificate({other->key_pem, pair->certificate_pem})));
  EXPECT_TRUE(absl::IsInvalidArgument(CheckKeyAndCertificate({"", pair->certificate_pem})));
  const std::string fingerprint = *CertificateFingerprint(pair->certificate_pem);
  EXPECT_NE(fingerprint, *CertificateFingerprint(other->certificate_pem));
  // Of a chain, the first counts.
  EXPECT_EQ(fingerprint, *CertificateFingerprint(pair->certificate_pem + other->certificate_pem));
  std::string spaced = "SHA256:";
  for (size_t i = 7; i < fingerprint.size(); i += 2) spaced += (i > 7 ? ":" : "") + fingerprint.substr(i, 2);
  EXPECT_EQ(*ParseFingerprint(spaced), fingerprint);
  for (const char* bad : {"", "sha256:", "sha1:00", "0123", "zz"}) EXPECT_FALSE(ParseFingerprint(bad).ok()) << bad;
  EXPECT_FALSE(CertificateFingerprint("no certificate").ok());
}

TEST(Addresses, LocalOnesAreKnown) {
  for (const char* address : {"127.0.0.1:7433", "127.9.9.9:1", "localhost:0", "[::1]:7", "unix:/x"}) {
    EXPECT_TRUE(IsLocalAddress(address)) << address;
  }
  // An abstract socket's name is anybody's who takes it first.
  for (const char* address : {"0.0.0.0:7433", "[::]:7433", "10.0.0.1:1", "127.evil.example:1", "example.org:1", "", "1270.0.0.1:1",
                              "unix-abstract:x"}) {
    EXPECT_FALSE(IsLocalAddress(address)) << address;
  }
}

}  // namespace
}  // namespace ablate
