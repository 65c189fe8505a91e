// See fault_vfs.h. A file of ours is a struct in memory that SQLite provides, with the wrapped one's behind it.
#include "server/store/testing/fault_vfs.h"

#include <sqlite3.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/mutex.h"
#include "base/strings.h"

namespace ablate {

struct FaultVfs::State {
  // What of a file a power cut may leave.
  struct Image {
    std::string durable;
    struct Change {
      int64_t at;
      std::string bytes;  // of a truncation to `at`: none
      bool truncate;
    };
    std::vector<Change> pending;
  };

  sqlite3_vfs vfs{};
  sqlite3_vfs* wrapped = nullptr;
  std::string path_part;

  mutable Mutex mutex;
  std::map<DiskCall, int64_t> counts ABLATE_GUARDED_BY(mutex);
  DiskCall call ABLATE_GUARDED_BY(mutex) = DiskCall::kWrite;
  int64_t fail_at ABLATE_GUARDED_BY(mutex) = 0;
  DiskFault fault ABLATE_GUARDED_BY(mutex) = DiskFault::kError;
  bool sticky ABLATE_GUARDED_BY(mutex) = false;
  bool broken ABLATE_GUARDED_BY(mutex) = false;
  int64_t faults ABLATE_GUARDED_BY(mutex) = 0;

  std::map<std::string, Image> images ABLATE_GUARDED_BY(mutex);
  int64_t cut_in ABLATE_GUARDED_BY(mutex) = 0;
  std::string cut_to ABLATE_GUARDED_BY(mutex);
  uint64_t cut_seed ABLATE_GUARDED_BY(mutex) = 0;
  std::function<void()> at_cut ABLATE_GUARDED_BY(mutex);
  bool was_cut ABLATE_GUARDED_BY(mutex) = false;

  // The result code to give instead of making the call; SQLITE_OK: make it.
  int Before(DiskCall now, bool ours, int error) {
    if (!ours) return SQLITE_OK;
    MutexLock lock(&mutex);
    const bool changes = now == DiskCall::kWrite || now == DiskCall::kSync;
    if (changes && cut_in > 0 && --cut_in == 0) Cut();
    const int64_t n = ++counts[now];
    const bool hit = fail_at > 0 && now == call && n == fail_at;
    if (hit && sticky) broken = true;
    if (!hit && !(broken && changes)) return SQLITE_OK;
    ++faults;
    return fault == DiskFault::kFull && changes ? SQLITE_FULL : error;
  }

  void Cut() ABLATE_REQUIRES(mutex) {
    std::mt19937_64 random(cut_seed);
    for (const auto& [path, image] : images) {
      if (absl::EndsWith(path, "-shm")) continue;
      std::string bytes = image.durable;
      for (const Image::Change& change : image.pending) {
        if (random() % 2 == 0) continue;
        if (change.truncate) {
          bytes.resize(std::min<size_t>(bytes.size(), static_cast<size_t>(change.at)));
          continue;
        }
        // Of a write any leading sectors.
        const size_t size = random() % 4 == 0 ? change.bytes.size() / 2 : change.bytes.size();
        const size_t at = static_cast<size_t>(change.at);
        if (bytes.size() < at + size) bytes.resize(at + size, '\0');
        bytes.replace(at, size, change.bytes, 0, size);
      }
      WriteFileAtomic(JoinPath(cut_to, Basename(path)), bytes).IgnoreError();
    }
    was_cut = true;
    if (at_cut) at_cut();
  }

  void Remember(const std::string& path, int64_t at, const void* bytes, int size, bool truncate) {
    MutexLock lock(&mutex);
    images[path].pending.push_back(
        {at, std::string(static_cast<const char*>(bytes), static_cast<size_t>(size)), truncate});
  }
  void Durable(const std::string& path) {
    MutexLock lock(&mutex);
    Image& image = images[path];
    for (const Image::Change& change : image.pending) {
      const size_t at = static_cast<size_t>(change.at);
      if (change.truncate) {
        image.durable.resize(std::min(image.durable.size(), at));
        continue;
      }
      if (image.durable.size() < at + change.bytes.size()) image.durable.resize(at + change.bytes.size(), '\0');
      image.durable.replace(at, change.bytes.size(), change.bytes);
    }
    image.pending.clear();
  }
};

namespace {

struct File {
  sqlite3_file base;
  FaultVfs::State* state;
  std::string* path;
  bool ours;
  sqlite3_file* real;  // in the memory after this struct
};

File* Self(sqlite3_file* file) { return reinterpret_cast<File*>(file); }
sqlite3_file* Real(sqlite3_file* file) { return Self(file)->real; }
const sqlite3_io_methods* Methods(sqlite3_file* file) { return Real(file)->pMethods; }

int Close(sqlite3_file* file) {
  const int code = Methods(file)->xClose(Real(file));
  delete Self(file)->path;
  Self(file)->path = nullptr;
  file->pMethods = nullptr;
  return code;
}
int Read(sqlite3_file* file, void* to, int size, sqlite3_int64 at) {
  const int code = Self(file)->state->Before(DiskCall::kRead, Self(file)->ours, SQLITE_IOERR_READ);
  return code != SQLITE_OK ? code : Methods(file)->xRead(Real(file), to, size, at);
}
int Write(sqlite3_file* file, const void* from, int size, sqlite3_int64 at) {
  const int code = Self(file)->state->Before(DiskCall::kWrite, Self(file)->ours, SQLITE_IOERR_WRITE);
  if (code == SQLITE_FULL) size /= 2;
  if (code == SQLITE_OK || code == SQLITE_FULL) {
    const int written = size > 0 ? Methods(file)->xWrite(Real(file), from, size, at) : SQLITE_OK;
    if (written != SQLITE_OK) return written;
    if (Self(file)->ours) Self(file)->state->Remember(*Self(file)->path, at, from, size, false);
  }
  return code;
}
int Truncate(sqlite3_file* file, sqlite3_int64 size) {
  int code = Self(file)->state->Before(DiskCall::kTruncate, Self(file)->ours, SQLITE_IOERR_TRUNCATE);
  if (code == SQLITE_OK) code = Methods(file)->xTruncate(Real(file), size);
  if (code == SQLITE_OK && Self(file)->ours) Self(file)->state->Remember(*Self(file)->path, size, "", 0, true);
  return code;
}
int Sync(sqlite3_file* file, int flags) {
  int code = Self(file)->state->Before(DiskCall::kSync, Self(file)->ours, SQLITE_IOERR_FSYNC);
  if (code == SQLITE_OK) code = Methods(file)->xSync(Real(file), flags);
  if (code == SQLITE_OK && Self(file)->ours) Self(file)->state->Durable(*Self(file)->path);
  return code;
}
int Size(sqlite3_file* file, sqlite3_int64* size) { return Methods(file)->xFileSize(Real(file), size); }
int Lock(sqlite3_file* file, int level) {
  const int code = Self(file)->state->Before(DiskCall::kLock, Self(file)->ours, SQLITE_BUSY);
  return code != SQLITE_OK ? code : Methods(file)->xLock(Real(file), level);
}
int Unlock(sqlite3_file* file, int level) { return Methods(file)->xUnlock(Real(file), level); }
int Reserved(sqlite3_file* file, int* out) { return Methods(file)->xCheckReservedLock(Real(file), out); }
int Control(sqlite3_file* file, int operation, void* argument) {
  return Methods(file)->xFileControl(Real(file), operation, argument);
}
int SectorSize(sqlite3_file* file) { return Methods(file)->xSectorSize(Real(file)); }
int Device(sqlite3_file* file) {
  // Nothing is promised that a power cut does not keep.
  (void)file;
  return 0;
}
int ShmMap(sqlite3_file* file, int page, int size, int extend, void volatile** to) {
  const int code = Self(file)->state->Before(DiskCall::kShm, Self(file)->ours, SQLITE_IOERR_SHMMAP);
  return code != SQLITE_OK ? code : Methods(file)->xShmMap(Real(file), page, size, extend, to);
}
int ShmLock(sqlite3_file* file, int offset, int n, int flags) {
  // Giving a lock back does not fail.
  const bool counts = Self(file)->ours && (flags & SQLITE_SHM_LOCK) != 0;
  const int code = Self(file)->state->Before(DiskCall::kLock, counts, SQLITE_BUSY);
  return code != SQLITE_OK ? code : Methods(file)->xShmLock(Real(file), offset, n, flags);
}
void ShmBarrier(sqlite3_file* file) { Methods(file)->xShmBarrier(Real(file)); }
int ShmUnmap(sqlite3_file* file, int remove) { return Methods(file)->xShmUnmap(Real(file), remove); }

const sqlite3_io_methods kMethods = {2,        Close,   Read,      Write,      Truncate, Sync,
                                     Size,     Lock,    Unlock,    Reserved,   Control,  SectorSize,
                                     Device,   ShmMap,  ShmLock,   ShmBarrier, ShmUnmap, nullptr,
                                     nullptr};

FaultVfs::State* StateOf(sqlite3_vfs* vfs) { return static_cast<FaultVfs::State*>(vfs->pAppData); }

int Open(sqlite3_vfs* vfs, sqlite3_filename name, sqlite3_file* file, int flags, int* out_flags) {
  FaultVfs::State* state = StateOf(vfs);
  File* self = Self(file);
  file->pMethods = nullptr;
  self->state = state;
  self->real = reinterpret_cast<sqlite3_file*>(self + 1);
  self->ours = name != nullptr && absl::StrContains(name, state->path_part);
  const int code = state->Before(DiskCall::kOpen, self->ours, SQLITE_CANTOPEN);
  if (code != SQLITE_OK) return code;
  const int opened = state->wrapped->xOpen(state->wrapped, name, self->real, flags, out_flags);
  if (self->real->pMethods == nullptr) return opened;
  self->path = new std::string(name == nullptr ? "" : name);
  file->pMethods = &kMethods;
  if (self->ours) {
    MutexLock lock(&state->mutex);
    const auto [place, added] = state->images.try_emplace(*self->path);
    if (added) place->second.durable = ReadFile(*self->path).value_or("");
  }
  return opened;
}
int Delete(sqlite3_vfs* vfs, const char* name, int sync) {
  FaultVfs::State* state = StateOf(vfs);
  {
    MutexLock lock(&state->mutex);
    state->images.erase(name);
  }
  return state->wrapped->xDelete(state->wrapped, name, sync);
}
int Access(sqlite3_vfs* vfs, const char* name, int flags, int* out) {
  return StateOf(vfs)->wrapped->xAccess(StateOf(vfs)->wrapped, name, flags, out);
}
int FullPathname(sqlite3_vfs* vfs, const char* name, int size, char* out) {
  return StateOf(vfs)->wrapped->xFullPathname(StateOf(vfs)->wrapped, name, size, out);
}
int Randomness(sqlite3_vfs* vfs, int size, char* out) {
  return StateOf(vfs)->wrapped->xRandomness(StateOf(vfs)->wrapped, size, out);
}
// A lock that is denied once is asked for again: without waiting.
int Sleep(sqlite3_vfs*, int microseconds) { return microseconds; }
int CurrentTime(sqlite3_vfs* vfs, double* now) {
  return StateOf(vfs)->wrapped->xCurrentTime(StateOf(vfs)->wrapped, now);
}
int LastError(sqlite3_vfs* vfs, int size, char* out) {
  return StateOf(vfs)->wrapped->xGetLastError(StateOf(vfs)->wrapped, size, out);
}
int CurrentTime64(sqlite3_vfs* vfs, sqlite3_int64* now) {
  return StateOf(vfs)->wrapped->xCurrentTimeInt64(StateOf(vfs)->wrapped, now);
}

}  // namespace

const char* DiskCallName(DiskCall call) {
  constexpr const char* names[] = {"write", "fsync", "truncate", "lock", "read", "open", "shared memory"};
  return names[static_cast<int>(call)];
}

FaultVfs::FaultVfs(std::string path_part) : state_(new State) {
  State& state = *state_;
  state.path_part = std::move(path_part);
  state.wrapped = sqlite3_vfs_find(nullptr);
  state.vfs.iVersion = 2;
  state.vfs.szOsFile = static_cast<int>(sizeof(File)) + state.wrapped->szOsFile;
  state.vfs.mxPathname = state.wrapped->mxPathname;
  state.vfs.zName = "ablate_faults";
  state.vfs.pAppData = &state;
  state.vfs.xOpen = Open;
  state.vfs.xDelete = Delete;
  state.vfs.xAccess = Access;
  state.vfs.xFullPathname = FullPathname;
  state.vfs.xRandomness = Randomness;
  state.vfs.xSleep = Sleep;
  state.vfs.xCurrentTime = CurrentTime;
  state.vfs.xGetLastError = LastError;
  state.vfs.xCurrentTimeInt64 = CurrentTime64;
  sqlite3_vfs_register(&state.vfs, /*makeDflt=*/1);
}

FaultVfs::~FaultVfs() {
  sqlite3_vfs_unregister(&state_->vfs);
  sqlite3_vfs_register(state_->wrapped, /*makeDflt=*/1);
}

void FaultVfs::FailNth(DiskCall call, int64_t n, DiskFault fault, bool sticky) {
  MutexLock lock(&state_->mutex);
  state_->counts.clear();
  state_->call = call;
  state_->fail_at = n;
  state_->fault = fault;
  state_->sticky = sticky;
  state_->broken = false;
}
void FaultVfs::Mend() {
  MutexLock lock(&state_->mutex);
  state_->counts.clear();
  state_->fail_at = 0;
  state_->broken = false;
}
int64_t FaultVfs::faults() const {
  MutexLock lock(&state_->mutex);
  return state_->faults;
}
int64_t FaultVfs::count(DiskCall call) const {
  MutexLock lock(&state_->mutex);
  const auto found = state_->counts.find(call);
  return found == state_->counts.end() ? 0 : found->second;
}
void FaultVfs::CutPowerAt(int64_t n, std::string to, uint64_t seed, std::function<void()> at) {
  MutexLock lock(&state_->mutex);
  state_->images.clear();
  state_->cut_in = n;
  state_->cut_to = std::move(to);
  state_->cut_seed = seed;
  state_->at_cut = std::move(at);
  state_->was_cut = false;
}
bool FaultVfs::power_was_cut() const {
  MutexLock lock(&state_->mutex);
  return state_->was_cut;
}

}  // namespace ablate
