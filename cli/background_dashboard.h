// The server that `ablate dashboard --background` leaves running on a folder: started apart from us, found again by a file
// in the folder that names its process. Must not know pages. Thread rule: free functions; one thread.
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

// 127.0.0.1:7480, or port 0 where that one is taken.
std::string DefaultDashboardAddress();

}  // namespace ablate
