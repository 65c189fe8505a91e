#include "base/certificates.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "base/strings.h"

namespace ablate {
namespace {

template <auto kFree>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using X509Pointer = std::unique_ptr<X509, Freed<&X509_free>>;
using KeyPointer = std::unique_ptr<EVP_PKEY, Freed<&EVP_PKEY_free>>;
using BioPointer = std::unique_ptr<BIO, Freed<&BIO_free_all>>;

constexpr char kPrefix[] = "sha256:";
constexpr long kSecondsADay = 86'400;
constexpr long kDays = 3'650;

absl::Status OpenSslError(std::string_view what) {
  char text[256] = "";
  ::ERR_error_string_n(::ERR_get_error(), text, sizeof(text));
  ::ERR_clear_error();
  return absl::InternalError(absl::StrCat(ToAbsl(what), ": ", text));
}

BioPointer Reading(std::string_view text) {
  return BioPointer(::BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::string Written(const BioPointer& bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

X509Pointer ReadCertificate(std::string_view pem) {
  const BioPointer bio = Reading(pem);
  X509Pointer certificate(::PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  ::ERR_clear_error();
  return certificate;
}

bool AddExtension(X509* certificate, int id, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  ::X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = ::X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str());
  if (extension == nullptr) return false;
  const bool added = ::X509_add_ext(certificate, extension, -1) == 1;
  ::X509_EXTENSION_free(extension);
  return added;
}

bool IsIpAddress(const std::string& name) {
  unsigned char bytes[16];
  return ::inet_pton(AF_INET, name.c_str(), bytes) == 1 || ::inet_pton(AF_INET6, name.c_str(), bytes) == 1;
}

// A password prompt on the terminal is no way to read a file.
int NoPassword(char*, int, int, void*) { return 0; }

}  // namespace

absl::StatusOr<KeyAndCertificate> MakeSelfSignedCertificate(const std::vector<std::string>& names) {
  const KeyPointer key(::EVP_EC_gen("P-256"));
  const X509Pointer certificate(::X509_new());
  if (key == nullptr || certificate == nullptr) return OpenSslError("cannot make a key");
  unsigned char serial[16];
  if (::RAND_bytes(serial, sizeof(serial)) != 1) return OpenSslError("no random numbers");
  serial[0] &= 0x7f;  // a positive number
  BIGNUM* number = ::BN_bin2bn(serial, sizeof(serial), nullptr);
  ::BN_to_ASN1_INTEGER(number, ::X509_get_serialNumber(certificate.get()));
  ::BN_free(number);

  ::X509_set_version(certificate.get(), X509_VERSION_3);
  ::X509_gmtime_adj(::X509_getm_notBefore(certificate.get()), -kSecondsADay);
  ::X509_gmtime_adj(::X509_getm_notAfter(certificate.get()), kDays * kSecondsADay);
  ::X509_set_pubkey(certificate.get(), key.get());
  X509_NAME* subject = ::X509_get_subject_name(certificate.get());
  ::X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("ablate-server"), -1,
                               -1, 0);
  ::X509_set_issuer_name(certificate.get(), subject);
  std::vector<std::string> alternatives;
  for (const std::string& name : names) alternatives.push_back(absl::StrCat(IsIpAddress(name) ? "IP:" : "DNS:", name));
  if (!AddExtension(certificate.get(), NID_basic_constraints, "critical,CA:FALSE") ||
      !AddExtension(certificate.get(), NID_key_usage, "critical,digitalSignature") ||
      !AddExtension(certificate.get(), NID_ext_key_usage, "serverAuth,clientAuth") ||
      (!alternatives.empty() &&
       !AddExtension(certificate.get(), NID_subject_alt_name, absl::StrJoin(alternatives, ","))) ||
      ::X509_sign(certificate.get(), key.get(), ::EVP_sha256()) == 0) {
    return OpenSslError("cannot make a certificate");
  }

  const BioPointer key_bio(::BIO_new(::BIO_s_mem())), certificate_bio(::BIO_new(::BIO_s_mem()));
  if (::PEM_write_bio_PrivateKey(key_bio.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1 ||
      ::PEM_write_bio_X509(certificate_bio.get(), certificate.get()) != 1) {
    return OpenSslError("cannot write a certificate");
  }
  return KeyAndCertificate{Written(key_bio), Written(certificate_bio)};
}

absl::StatusOr<std::string> CertificateFingerprint(std::string_view pem) {
  const X509Pointer certificate = ReadCertificate(pem);
  if (certificate == nullptr) return absl::InvalidArgumentError("there is no PEM certificate");
  unsigned char* der = nullptr;
  const int size = ::i2d_X509(certificate.get(), &der);
  if (size <= 0) return OpenSslError("cannot read a certificate");
  const std::string hash = Sha256Hex({reinterpret_cast<const char*>(der), static_cast<size_t>(size)});
  ::OPENSSL_free(der);
  return absl::StrCat(kPrefix, hash);
}

absl::StatusOr<std::string> ParseFingerprint(std::string_view text) {
  std::string digits = absl::AsciiStrToLower(absl::StripAsciiWhitespace(ToAbsl(text)));
  if (absl::StartsWith(digits, kPrefix)) digits.erase(0, sizeof(kPrefix) - 1);
  digits = absl::StrReplaceAll(digits, {{":", ""}});
  if (!IsSha256Hex(digits)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", absl::CHexEscape(ToAbsl(text)),
                     "\" is no fingerprint: expected sha256: and 64 hexadecimal digits, as ablate-server prints it"));
  }
  return absl::StrCat(kPrefix, digits);
}

absl::Status CheckKeyAndCertificate(const KeyAndCertificate& pair) {
  const X509Pointer certificate = ReadCertificate(pair.certificate_pem);
  if (certificate == nullptr) return absl::InvalidArgumentError("there is no PEM certificate");
  const BioPointer bio = Reading(pair.key_pem);
  const KeyPointer key(::PEM_read_bio_PrivateKey(bio.get(), nullptr, &NoPassword, nullptr));
  const bool fits = key != nullptr && ::X509_check_private_key(certificate.get(), key.get()) == 1;
  ::ERR_clear_error();
  if (key == nullptr) return absl::InvalidArgumentError("there is no PEM private key without a password");
  if (!fits) return absl::InvalidArgumentError("the private key is not that of the certificate");
  return absl::OkStatus();
}

}  // namespace ablate
