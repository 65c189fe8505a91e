// For fuzz targets: bytes as a file, for readers that take a path. Lives in memory; gone with the object.
// Thread rule: one thread.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "base/log.h"

namespace ablate {

class MemoryFile {
 public:
  explicit MemoryFile(std::string_view content) : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    CHECK_GE(fd_, 0);
    for (size_t done = 0; done < content.size();) {
      const ssize_t count = ::write(fd_, content.data() + done, content.size() - done);
      CHECK_GT(count, 0);
      done += static_cast<size_t>(count);
    }
    CHECK_EQ(::lseek(fd_, 0, SEEK_SET), 0);
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  int fd() const { return fd_; }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

// One byte off the front of what is left of an input; 0 at its end.
inline unsigned TakeByte(std::string_view* rest) {
  if (rest->empty()) return 0;
  const unsigned byte = static_cast<unsigned char>(rest->front());
  rest->remove_prefix(1);
  return byte;
}

}  // namespace ablate
