// The server that `ablate dashboard --background` leaves running on a folder: started apart from us, found again by a file
// in the folder that names its process; and where the page of a folder is served. Must not know pages. Thread rule: free functions; one thread.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ablate {

// The process that runs in the background for this folder, if it still does.
std::optional<pid_t> BackgroundDashboard(const std::string& data_dir);

// Starts one and waits until it answers; its log is appended to data_dir/server.log. `http`: HOST:PORT. As
// LocalServer::Start.
absl::StatusOr<pid_t> StartBackgroundDashboard(const std::string& data_dir, const std::string& http);

// SIGTERM, and waits for the end. NotFound: none runs. DeadlineExceeded: it does not end.
absl::Status StopBackgroundDashboard(const std::string& data_dir);

// What the server that has the folder open wrote about its page: "http://127.0.0.1:7480/". Null: it serves none.
std::optional<std::string> DashboardLink(const std::string& data_dir);

// InvalidArgument (usage): not HOST:PORT. What it names need not exist.
absl::Status CheckDashboardAddress(const std::string& http);

// Where nobody chose: on 127.0.0.1, the port of the folder's last page if it is free, so that a page that is still open
// finds the next server; else 7480; else 0.
std::string UsualDashboardAddress(const std::string& data_dir);
bool IsFreeHere(const std::string& loopback_address);
// For the next UsualDashboardAddress: the port of the page that is served now.
void KeepDashboardPort(const std::string& data_dir);

// `start` with `chosen`, or where that is "" with the usual address; with a free one where somebody was faster.
template <typename Start>
auto StartWithPage(const std::string& data_dir, const std::string& chosen, const Start& start) {
  const std::string address = chosen.empty() ? UsualDashboardAddress(data_dir) : chosen;
  auto started = start(address);
  if (!started.ok() && chosen.empty() && !IsFreeHere(address)) started = start("127.0.0.1:0");
  if (started.ok()) KeepDashboardPort(data_dir);
  return started;
}

// Held while a dashboard in the background is started: who comes second finds the server of who came first.
class DashboardStartLock {
 public:
  explicit DashboardStartLock(const std::string& data_dir);  // waits; does nothing where the folder cannot be locked
  ~DashboardStartLock();
  DashboardStartLock(const DashboardStartLock&) = delete;
  DashboardStartLock& operator=(const DashboardStartLock&) = delete;

 private:
  const int fd_;
};

}  // namespace ablate
