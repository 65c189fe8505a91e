// Stored files by content: data sets and checkpoints, one file a SHA-256 under ROOT/ab/cdef..., uploads in progress
// under ROOT/partial/. Must not know gRPC, jobs or SQL.
//
// A file gets its final name only after its content was hashed, compared and fsynced, so whatever has a final name is
// whole. An upload may stop anywhere and go on later from what Stat says. Several uploads of one hash at once share one
// partial file: they write the same bytes at the same offsets, and the first that is complete wins; if one of them
// lied, all start again. Thread rule: every method may be called from any thread; one Upload or Reader belongs to one
// thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/hash.h"
#include "base/mutex.h"

namespace ablate {

class ArtifactStore {
 public:
  // Makes the folders; forgets partial uploads that nobody has touched for a week. An upload that would leave less than
  // `min_free_bytes` on the disk is refused, so that the database can still commit. Unavailable, PermissionDenied:
  // cannot.
  static absl::StatusOr<std::unique_ptr<ArtifactStore>> Open(const std::string& root,
                                                             int64_t min_free_bytes = int64_t{64} << 20);

  struct StatResult {
    bool complete = false;
    int64_t bytes = 0;  // of the artifact if complete, else the offset from which an upload may go on
  };
  // InvalidArgument: not a SHA-256 (as in every call below).
  absl::StatusOr<StatResult> Stat(const std::string& sha256);
  bool Has(const std::string& sha256) const;

  class Upload {
   public:
    ~Upload();
    Upload(const Upload&) = delete;
    Upload& operator=(const Upload&) = delete;

    // InvalidArgument: more bytes than announced. Aborted: another upload of this hash was found false; start again
    // from Stat. ResourceExhausted: disk full. Others as FileError.
    absl::Status Append(std::string_view chunk);
    // Verifies, makes durable, gives the final name. InvalidArgument: fewer bytes than announced (kept, to be resumed).
    // DataLoss: the content does not have this hash (thrown away). Others as above.
    absl::Status Finish();

   private:
    friend class ArtifactStore;
    struct Entry;
    Upload(ArtifactStore* store, std::shared_ptr<Entry> entry, int64_t total, int64_t position);
    ArtifactStore* const store_;
    const std::shared_ptr<Entry> entry_;
    const int64_t total_;
    int64_t position_;
  };
  // OutOfRange: `offset` is beyond what is here. ResourceExhausted: the disk has no room for it.
  // Of an artifact that is here already: an upload that stores nothing and finishes OK.
  absl::StatusOr<std::unique_ptr<Upload>> StartUpload(const std::string& sha256, int64_t total, int64_t offset);

  class Reader {
   public:
    ~Reader();
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;
    int64_t total_bytes() const { return total_; }
    // At most `max` bytes into *out; empty at the end. Unavailable: cannot read. DataLoss, at the end: what was read is
    // not what was stored. Then the file is set aside as *.corrupt and is no artifact any more: a state is trained
    // again by whoever needs it, data must be uploaded again.
    absl::Status Read(size_t max, std::string* out);

   private:
    friend class ArtifactStore;
    Reader(const ArtifactStore* store, std::string sha256, int fd, int64_t total)
        : store_(store), sha256_(std::move(sha256)), fd_(fd), total_(total) {}
    const ArtifactStore* const store_;
    const std::string sha256_;
    const int fd_;
    const int64_t total_;
    Sha256 hash_;
    int64_t position_ = 0;
    bool ended_ = false;
  };
  // NotFound: not here. OutOfRange: offset beyond the end. A reader goes on when its artifact is removed, and ends
  // before the store. What comes before `offset` is read too, for its hash.
  absl::StatusOr<std::unique_ptr<Reader>> OpenReader(const std::string& sha256, int64_t offset) const;

  // For garbage collection: quick, waits for nobody. Uploads of it that are under way are aborted. OK when it is not
  // here.
  absl::Status Remove(const std::string& sha256);
  // Removes whole artifacts for which `is_named` is false and that are older than this. At the start, before anybody
  // uploads.
  void RemoveUnnamed(const std::function<bool(const std::string& sha256)>& is_named, int64_t min_age_seconds);

 private:
  ArtifactStore(std::string root, int64_t min_free_bytes) : root_(std::move(root)), min_free_bytes_(min_free_bytes) {}
  void SetAside(const std::string& sha256, const std::string& found) const;
  std::string FinalPath(const std::string& sha256) const;
  std::string PartialPath(const std::string& sha256) const;

  const std::string root_;
  const int64_t min_free_bytes_;
  Mutex mutex_;  // never held together with an entry's own mutex
  std::map<std::string, std::weak_ptr<Upload::Entry>> entries_ ABLATE_GUARDED_BY(mutex_);
};

}  // namespace ablate
