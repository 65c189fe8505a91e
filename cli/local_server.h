// A private ablate-server on a folder, for `ablate run` and for reading a finished run with --data-dir. Found beside
// this program. Must not know sweeps or output. Thread rule: one thread, which must live as long as the object (see
// base/subprocess.h).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/subprocess.h"

namespace ablate {

class LocalServer {
 public:
  // Starts it on data_dir/SOCKET_NAME (or, where that path is over 107 bytes, on a socket in a private folder under
  // /tmp) and waits until it answers. Its log is appended to `log_path`. FailedPrecondition and others: it did not
  // start; with what it said. `http`: HOST:PORT where it serves the dashboard (background_dashboard.h finds the link); "":
  // it serves none. ResourceExhausted: its disk has no room to open it for writing. `read_only`: works on a copy.
  static absl::StatusOr<std::unique_ptr<LocalServer>> Start(const std::string& data_dir, const std::string& log_path,
                                                            const std::string& http = "", bool read_only = false);
  // For commands that read: read-only where the disk is full.
  static absl::StatusOr<std::unique_ptr<LocalServer>> StartToRead(const std::string& data_dir, const std::string& log_path,
                                                                  const std::string& http = "");
  // Stops it: SIGTERM, and SIGKILL after ten seconds.
  ~LocalServer();

  const std::string& address() const { return address_; }
  bool read_only() const { return read_only_; }
  bool HasExited() { return process_->HasExited(); }

 private:
  LocalServer() = default;
  std::string address_;
  bool read_only_ = false;
  std::string private_dir_;  // removed at the end; may be empty
  std::optional<Subprocess> process_;
};

// The address of the server that has `data_dir` open, from data_dir/server.address, if it answers.
std::optional<std::string> RunningServer(const std::string& data_dir);

// Whether "unix:PATH" is short enough for a socket.
bool FitsSocketAddress(const std::string& address);

// "run.sock" in data_dir as "unix:..."; in a fresh private folder (set) where that is too long.
absl::StatusOr<std::string> SocketAddress(const std::string& data_dir, std::string* private_dir);

// The program of that name beside this one. NotFound.
absl::StatusOr<std::string> SiblingProgram(const std::string& name);

// The last lines of a file, for messages; "" when it cannot be read.
std::string Tail(const std::string& path, size_t max_bytes = 2000);

// SIGTERM, then SIGKILL after `seconds`, or at once when a caught stop signal comes meanwhile (then later calls wait
// for one second at most); true when it ended by itself.
bool StopProcess(Subprocess* process, double seconds);

}  // namespace ablate
