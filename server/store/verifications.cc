// See claims.h and records.h. Here: the second run of a job compared with the first, and losses by document.
#include <bit>
#include <cmath>
#include <cstring>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/store/claims.h"

namespace ablate {
namespace {

constexpr size_t kDocumentBytes = 16;

template <typename T>
void AppendLittleEndian(T value, std::string* bytes) {
  static_assert(std::endian::native == std::endian::little);
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// A number as it is compared: finite ones by their bits, others by what they are. SQLite keeps no sign of zero.
struct Number {
  uint64_t bits = 0;
  std::string text;
};

Number NumberOf(double value) {
  if (std::isnan(value)) return {1, "nan"};
  if (std::isinf(value)) return {2, value > 0 ? "inf" : "-inf"};
  if (value == 0) value = 0.0;
  return {std::bit_cast<uint64_t>(value) + 3, absl::StrFormat("%.17g", value)};
}

struct FirstRun {
  std::map<std::string, Number> metrics;
  std::map<std::string, std::string> made;  // files by name: SHA-256
  std::string device, end_weights, documents;
  bool diverged = false;
  int64_t diverged_at_step = 0;
};

absl::StatusOr<FirstRun> ReadFirstRun(Connection& db, const JobRef& job) {
  FirstRun first;
  const bool stage = job.kind == v1::STAGE;
  {
    // The job whose result the key has now.
    ABLATE_ASSIGN_OR_RETURN(
        Statement row,
        db.Query("SELECT j.device, j.end_weights_sha256, j.outcome, j.diverged_at_step FROM jobs j WHERE j.key = ? AND "
                 "j.state = 'SUCCEEDED' AND j.verify_of IS NULL AND j.attempt > 0 ORDER BY j.ended_at_us DESC, j.row "
                 "DESC LIMIT 1",
                 job.key));
    ABLATE_ASSIGN_OR_RETURN(const bool found, row.Step());
    if (!found) return absl::InternalError(absl::StrCat("no finished job has key ", job.key));
    first.device = row.Text(0);
    first.end_weights = row.Text(1);
    first.diverged = row.Text(2) == "DIVERGED";
    first.diverged_at_step = row.Int(3);
  }
  {
    ABLATE_ASSIGN_OR_RETURN(
        Statement rows,
        db.Query(stage ? "SELECT r.metric, r.value, r.non_finite FROM stages s JOIN stage_results r ON r.stage = s.row "
                         "WHERE s.key = ?"
                       : "SELECT r.metric, r.value, r.non_finite FROM evaluations e JOIN evaluation_results r ON "
                         "r.evaluation = e.row WHERE e.key = ?",
                 job.key));
    while (true) {
      ABLATE_ASSIGN_OR_RETURN(const bool more, rows.Step());
      if (!more) break;
      const std::string word = rows.Text(2);
      // A diverged run is recorded with metrics that it did not report: they have neither value nor word.
      if (rows.IsNull(1) && word.empty()) continue;
      first.metrics[rows.Text(0)] = NumberOf(word == "nan"    ? std::nan("")
                                             : word == "inf"  ? INFINITY
                                             : word == "-inf" ? -INFINITY
                                                              : rows.Real(1));
    }
  }
  if (stage) return first;
  {
    ABLATE_ASSIGN_OR_RETURN(Statement rows, db.Query("SELECT r.name, r.sha256 FROM evaluations e JOIN result_artifacts r "
                                                     "ON r.evaluation = e.row WHERE e.key = ?",
                                                     job.key));
    while (true) {
      ABLATE_ASSIGN_OR_RETURN(const bool more, rows.Step());
      if (!more) break;
      first.made[rows.Text(0)] = rows.Text(1);
    }
  }
  ABLATE_ASSIGN_OR_RETURN(Statement row, db.Query("SELECT d.documents FROM evaluations e JOIN document_losses d ON "
                                                  "d.evaluation = e.row WHERE e.key = ?",
                                                  job.key));
  ABLATE_ASSIGN_OR_RETURN(const bool found, row.Step());
  if (found) first.documents = row.Bytes(0);
  return first;
}

// Everything that differs, "; " between; "" where nothing does.
std::string Differences(const FirstRun& first, const v1::TaskResult& second) {
  std::string text;
  const auto add = [&](const std::string& what) { absl::StrAppend(&text, text.empty() ? "" : "; ", what); };
  const bool diverged = second.outcome() == v1::DIVERGED;
  if (diverged != first.diverged) {
    add(absl::StrCat("outcome ", first.diverged ? "DIVERGED" : "COMPLETED", " and ",
                     diverged ? "DIVERGED" : "COMPLETED"));
  } else if (diverged && first.diverged_at_step != second.diverged_at_step()) {
    add(absl::StrCat("diverged at step ", first.diverged_at_step, " and ", second.diverged_at_step()));
  }
  std::map<std::string, Number> metrics;
  for (const v1::MetricValue& metric : second.metrics()) metrics[metric.metric()] = NumberOf(metric.value());
  for (const auto& [metric, value] : first.metrics) {
    const auto other = metrics.find(metric);
    if (other == metrics.end()) {
      add(absl::StrCat(metric, " ", value.text, " and not measured"));
    } else if (other->second.bits != value.bits || other->second.text != value.text) {
      add(absl::StrCat(metric, " ", value.text, " and ", other->second.text));
    }
  }
  for (const auto& [metric, value] : metrics) {
    if (!first.metrics.contains(metric)) add(absl::StrCat(metric, " not measured and ", value.text));
  }
  const std::string& weights = second.end_state().weights().sha256();
  if (weights != first.end_weights) {
    if (first.end_weights.empty()) {
      // An earlier release kept no hash of what was collected.
      add(absl::StrCat("end weights: no hash of the first run, and ", weights));
    } else {
      add(absl::StrCat("end weights ", first.end_weights, " and ", weights.empty() ? "none" : weights));
    }
  }
  std::map<std::string, std::string> made;
  for (const v1::ResultArtifact& file : second.artifacts()) made[file.name()] = file.artifact().sha256();
  for (const auto& [name, sha256] : first.made) {
    const auto other = made.find(name);
    const std::string found = other == made.end() ? "none" : other->second;
    if (found != sha256) add(absl::StrCat("the made file ", name, " ", sha256, " and ", found));
  }
  for (const auto& [name, sha256] : made) {
    if (!first.made.contains(name)) add(absl::StrCat("the made file ", name, " none and ", sha256));
  }
  if (!first.documents.empty() && first.documents != PackDocuments(second.documents()))
    add("losses by document differ");
  return text;
}

}  // namespace

std::string PackDocuments(const google::protobuf::RepeatedPtrField<v1::DocumentLoss>& documents) {
  std::string bytes;
  bytes.reserve(static_cast<size_t>(documents.size()) * kDocumentBytes);
  for (const v1::DocumentLoss& document : documents) {
    AppendLittleEndian<int32_t>(document.document(), &bytes);
    AppendLittleEndian<int32_t>(document.targets(), &bytes);
    AppendLittleEndian<double>(document.loss_sum(), &bytes);
  }
  return bytes;
}

absl::StatusOr<std::vector<v1::DocumentLoss>> UnpackDocuments(const std::string& bytes) {
  if (bytes.size() % kDocumentBytes != 0) return absl::DataLossError("stored losses by document cannot be read");
  std::vector<v1::DocumentLoss> documents(bytes.size() / kDocumentBytes);
  for (size_t i = 0; i < documents.size(); ++i) {
    int32_t number = 0, targets = 0;
    double sum = 0;
    std::memcpy(&number, bytes.data() + i * kDocumentBytes, 4);
    std::memcpy(&targets, bytes.data() + i * kDocumentBytes + 4, 4);
    std::memcpy(&sum, bytes.data() + i * kDocumentBytes + 8, 8);
    documents[i].set_document(number);
    documents[i].set_targets(targets);
    documents[i].set_loss_sum(sum);
  }
  return documents;
}

absl::StatusOr<std::vector<StoredDocuments>> ReadDocuments(Connection& db, SweepRow sweep) {
  std::vector<StoredDocuments> all;
  ABLATE_ASSIGN_OR_RETURN(
      Statement rows,
      db.Query("SELECT p.arm, p.seed, p.phase, e.length, e.split, e.ntk, d.documents FROM points p JOIN "
               "point_evaluations pe ON pe.sweep = p.sweep AND pe.arm = p.arm AND pe.seed = p.seed AND pe.phase = "
               "p.phase JOIN evaluations e ON e.row = pe.evaluation JOIN document_losses d ON d.evaluation = e.row "
               "WHERE p.sweep = ? AND p.seal = 'open' ORDER BY p.arm, p.phase, e.length, e.split, e.ntk, p.seed",
               sweep));
  while (true) {
    ABLATE_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) return all;
    StoredDocuments& one = all.emplace_back();
    one.arm = static_cast<int>(rows.Int(0));
    one.seed = rows.Int(1);
    one.phase = PhaseFromName(rows.Text(2));
    one.length = rows.Int(3);
    one.split = rows.Text(4);
    one.ntk = rows.Int(5) != 0;
    ABLATE_ASSIGN_OR_RETURN(one.documents, UnpackDocuments(rows.Bytes(6)));
  }
}

absl::Status InsertVerification(Connection& db, JobRow job, JobRow of_job, int64_t wall_us) {
  return db.Run(
      "INSERT INTO verifications (job, of_job, result, difference, device, at_us) VALUES (?, ?, NULL, '', NULL, "
      "?)",
      job, of_job, wall_us);
}

absl::Status WriteVerification(Connection& db, const JobRef& job, const v1::AttemptReport& report, int64_t wall_us,
                               std::vector<std::string>* unreferenced) {
  const v1::TaskResult& result = report.result();
  ABLATE_ASSIGN_OR_RETURN(const FirstRun first, ReadFirstRun(db, job));
  const std::string difference = Differences(first, result);
  const bool same_device = first.device == result.device_kind();
  ABLATE_RETURN_IF_ERROR(
      db.Run("UPDATE verifications SET result = ?, difference = ?, device = ?, at_us = ? WHERE job = ?",
             !same_device ? "other_device" : (difference.empty() ? "same" : "different"), difference,
             result.device_kind(), wall_us, job.row));
  ABLATE_RETURN_IF_ERROR(db.Run("UPDATE jobs SET device = ?, seconds = ?, peak_memory_bytes = ? WHERE row = ?",
                                result.device_kind(), result.seconds(), result.peak_memory_bytes(), job.row));
  ABLATE_RETURN_IF_ERROR(AppendIfUnreferenced(db, result.end_state().weights().sha256(), unreferenced));
  return AppendIfUnreferenced(db, result.end_state().optimizer().sha256(), unreferenced);
}

absl::Status ForgetVerificationProgress(Connection& db, const v1::AttemptReport& report,
                                        std::vector<std::string>* unreferenced) {
  ABLATE_RETURN_IF_ERROR(AppendIfUnreferenced(db, report.checkpoint().weights().sha256(), unreferenced));
  return AppendIfUnreferenced(db, report.checkpoint().optimizer().sha256(), unreferenced);
}

absl::StatusOr<std::vector<v1::Verification>> ReadVerifications(Connection& db, SweepRow sweep, int64_t limit) {
  std::vector<v1::Verification> all;
  ABLATE_ASSIGN_OR_RETURN(
      Statement rows,
      db.Query(
          "SELECT o.job_id, j.job_id, v.result, v.difference, v.device, v.at_us, j.state, j.failure_message FROM "
          "verifications v JOIN jobs j ON j.row = v.job JOIN jobs o ON o.row = v.of_job WHERE ?1 = 0 OR EXISTS "
          "(SELECT 1 FROM sweep_jobs s JOIN jobs k ON k.row = s.job WHERE s.sweep = ?1 AND k.key = o.key) ORDER BY "
          "v.job DESC LIMIT ?2",
          sweep, limit));
  while (true) {
    ABLATE_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) return all;
    v1::Verification& one = all.emplace_back();
    one.set_job_id(rows.Text(0));
    one.set_verify_job_id(rows.Text(1));
    const std::string result = rows.Text(2), state = rows.Text(6);
    one.set_difference(rows.Text(3));
    one.set_device_kind(rows.Text(4));
    one.set_at_us(rows.Int(5));
    if (result == "same") {
      one.set_result(v1::Verification::SAME);
    } else if (result == "different") {
      one.set_result(v1::Verification::DIFFERENT);
    } else if (result == "other_device") {
      one.set_result(v1::Verification::OTHER_DEVICE);
    } else if (state == "FAILED" || state == "CANCELLED") {
      one.set_result(v1::Verification::FAILED);
      one.set_difference(state == "FAILED" ? rows.Text(7) : "cancelled");
    } else {
      one.set_result(v1::Verification::PENDING);
    }
  }
}

}  // namespace ablate
