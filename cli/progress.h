// Progress on stderr: a line that is rewritten on a terminal, else a whole line now and then. Must not know gRPC.
// Thread rule: one thread.
#pragma once

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>

#include "proto/resources.pb.h"

namespace ablate {

// "quickstart [#####.....] 45/126 jobs | step 12000/36000 | 15.2k tokens/s | 2m10s left". At most `width` columns.
// The 45 are those that succeeded; failed and cancelled ones are counted apart, where there are any. The bar and the time left
// are of work, which none of these has any more.
std::string ProgressLine(const v1::Sweep& sweep, std::optional<double> seconds_left, int width);

// How long a sweep will take: from the share of jobs and steps done since the first update.
class TimeLeft {
 public:
  // nullopt until there is enough to judge by: 3 seconds and 1 % of progress.
  std::optional<double> Update(const v1::Sweep& sweep, double now_seconds);

 private:
  std::optional<double> start_seconds_;
  double start_share_ = 0;
};

class Progress {
 public:
  // `every_seconds`: between lines where `out` is no terminal.
  explicit Progress(std::FILE* out, double every_seconds = 10);
  ~Progress() { Clear(); }
  void Show(const std::string& line);
  // Takes the rewritten line away, so that other output starts on an empty one.
  void Clear();
  bool terminal() const { return terminal_; }
  int width() const;

 private:
  std::FILE* const out_;
  const double every_seconds_;
  const bool terminal_;
  bool shown_ = false;
  std::optional<std::chrono::steady_clock::time_point> last_;
};

// Columns of the terminal on `fd`; `otherwise` where it is none.
int TerminalWidth(int fd, int otherwise);

}  // namespace ablate
