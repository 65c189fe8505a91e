// See digest.h.
#include "server/store/digest.h"

#include <sqlite3.h>

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace ablate {
namespace {

constexpr uint64_t kOffset = 0xcbf29ce484222325ull;
constexpr uint64_t kPrime = 0x100000001b3ull;

class Fnv {
 public:
  void Bytes(const void* data, size_t size) {
    const unsigned char* bytes = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < size; ++i) value_ = (value_ ^ bytes[i]) * kPrime;
  }
  void Number(unsigned char type, uint64_t number) {
    unsigned char bytes[9] = {type};
    for (int i = 0; i < 8; ++i) bytes[i + 1] = static_cast<unsigned char>(number >> (8 * i));
    Bytes(bytes, sizeof(bytes));
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = kOffset;
};

void Digest(sqlite3_context* context, int count, sqlite3_value** values) {
  Fnv fnv;
  for (int i = 0; i < count; ++i) {
    switch (sqlite3_value_type(values[i])) {
      case SQLITE_INTEGER:
        fnv.Number(1, static_cast<uint64_t>(sqlite3_value_int64(values[i])));
        break;
      case SQLITE_FLOAT: {
        const double value = sqlite3_value_double(values[i]);
        if (value == std::trunc(value) && std::fabs(value) < 9007199254740992.0) {
          fnv.Number(1, static_cast<uint64_t>(static_cast<int64_t>(value)));
        } else {
          uint64_t bits;
          std::memcpy(&bits, &value, sizeof(bits));
          fnv.Number(2, bits);
        }
        break;
      }
      case SQLITE_TEXT:
      case SQLITE_BLOB: {
        const bool text = sqlite3_value_type(values[i]) == SQLITE_TEXT;
        const void* data = text ? sqlite3_value_text(values[i]) : sqlite3_value_blob(values[i]);
        const size_t size = static_cast<size_t>(sqlite3_value_bytes(values[i]));
        fnv.Number(text ? 3 : 4, size);
        if (data != nullptr) fnv.Bytes(data, size);
        break;
      }
      default:
        fnv.Number(0, 0);
    }
  }
  sqlite3_result_int64(context, static_cast<int64_t>(fnv.value()));
}

}  // namespace

const std::vector<DigestedTable>& DigestedTables() {
  static const auto& tables = *new std::vector<DigestedTable>{
      {"sweeps", "row, sweep_id, name, file_name, yaml, spec, spec_sha256, plan_sha256, data, baseline_arm", true},
      {"plan_versions", "sweep, version, at_us, why, yaml, spec_sha256, plan_sha256", false},
      {"arms", "sweep, arm, json, label, phase, tunes, learning_rate", true},
      {"stages", "row, key, parent, config, seed, from_step, to_step, train_length, data, executor", true},
      {"evaluations", "row, key, stage, eval_config, length, split, ntk", true},
      {"points", "sweep, arm, seed, phase, stage, seal", true},
      {"point_evaluations", "sweep, arm, seed, phase, evaluation, standing", true},
      {"locks", "sweep, arm, rule_arm, by_hand, why, at_us, evidence, short_rule_arm, short_rule_regret", true},
      {"tuned_arms", "sweep, position, arm, learning_rate, note", true},
      {"tuning_tries", "sweep, position, try, learning_rate, mean, diverged, extension, jobs", false},
      {"jobs", "row, job_id, kind, key, retry_of, verify_of, from_step, to_step, executor", true},
      {"evaluation_results", "evaluation, metric, value, non_finite, status, job, device, at_us", false},
      {"stage_results", "stage, metric, value, non_finite, status, job, device, at_us", false},
      {"curves", "stage, metric, step, value, non_finite", false},
      {"document_losses", "evaluation, job, count, documents", false},
  };
  return tables;
}

std::string DigestExpression(const DigestedTable& table) {
  return absl::StrCat("ablate_digest('", table.table, "', ", table.columns, ")");
}

void RegisterDigest(sqlite3* handle) {
  sqlite3_create_function_v2(handle, "ablate_digest", -1, SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS,
                             nullptr, &Digest, nullptr, nullptr, nullptr);
}

absl::StatusOr<DigestCounts> CountDigests(Connection& db, const DigestedTable& table) {
  ABLATE_ASSIGN_OR_RETURN(
      Statement row, db.Query(absl::StrCat("SELECT COUNT(*), TOTAL(digest IS NULL), TOTAL(digest IS NOT NULL AND digest "
                                           "<> ",
                                           DigestExpression(table), ") FROM ", table.table, " NOT INDEXED")));
  ABLATE_RETURN_IF_ERROR(row.Step().status());
  return DigestCounts{.rows = row.Int(0), .wrong = row.Int(2), .without = row.Int(1)};
}

}  // namespace ablate
