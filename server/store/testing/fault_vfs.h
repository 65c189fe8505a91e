// A file system under SQLite that fails on demand: the n-th write, fsync, truncation, lock, read or opening, once or
// until it is mended; and that loses what was not fsynced, as a power cut does. For tests.
//
// It wraps SQLite's default VFS and takes its place while it lives: one at a time, and every connection must be closed
// before it goes. Only files whose path contains `path_part` fail or are remembered.
// Thread rule: every method may be called from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>

namespace ablate {

enum class DiskCall { kWrite, kSync, kTruncate, kLock, kRead, kOpen, kShm };
constexpr DiskCall kDiskCalls[] = {DiskCall::kWrite, DiskCall::kSync, DiskCall::kTruncate, DiskCall::kLock,
                                   DiskCall::kRead,  DiskCall::kOpen, DiskCall::kShm};
const char* DiskCallName(DiskCall call);

enum class DiskFault {
  kError,   // SQLITE_IOERR_*, CANTOPEN; BUSY of a lock
  kFull,    // SQLITE_FULL; of a write, with half of it done
};

class FaultVfs {
 public:
  explicit FaultVfs(std::string path_part);
  ~FaultVfs();
  FaultVfs(const FaultVfs&) = delete;
  FaultVfs& operator=(const FaultVfs&) = delete;

  // Fails the n-th call of this kind from now, counted from 1, and with `sticky` all later ones of writes and fsyncs
  // until Mend.
  void FailNth(DiskCall call, int64_t n, DiskFault fault, bool sticky);
  void Mend();
  int64_t faults() const;                // that were injected since the beginning
  int64_t count(DiskCall call) const;    // of calls since the last FailNth or Mend

  // Just before the n-th write or fsync from now, what a power cut at that moment leaves is written to the folder `to`:
  // of each file what was fsynced, and of the writes after that any subset, chosen by the seed. `at` is called at that
  // moment, in the thread of the call: what was answered until then must survive. With no file open.
  void CutPowerAt(int64_t n, std::string to, uint64_t seed, std::function<void()> at);
  bool power_was_cut() const;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace ablate
