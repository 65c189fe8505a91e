#include "cli/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/strings.h"
#include "cli/output/report.h"

namespace ablate {
namespace {

// With which no more work is to be expected, however they ended.
int64_t Over(const v1::JobCounts& jobs) { return jobs.succeeded() + jobs.failed() + jobs.cancelled(); }
int64_t All(const v1::JobCounts& jobs) { return Over(jobs) + jobs.blocked() + jobs.queued() + jobs.running(); }

// Training and evaluation each count by half: either can be the longer part.
double Share(const v1::Sweep& sweep) {
  const double jobs = All(sweep.jobs()) > 0 ? static_cast<double>(Over(sweep.jobs())) / All(sweep.jobs()) : 0;
  if (sweep.steps_total() <= 0) return jobs;
  return 0.5 * jobs + 0.5 * std::min(1.0, static_cast<double>(sweep.steps_done()) / sweep.steps_total());
}

std::string Thousands(double value) {
  if (value >= 1e6) return absl::StrFormat("%.1fM", value / 1e6);
  if (value >= 1e3) return absl::StrFormat("%.1fk", value / 1e3);
  return absl::StrFormat("%.0f", value);
}

}  // namespace

std::string ProgressLine(const v1::Sweep& sweep, std::optional<double> seconds_left, int width) {
  std::string line = absl::StrCat(sweep.jobs().succeeded(), "/", All(sweep.jobs()), " jobs");
  if (sweep.jobs().failed() > 0) absl::StrAppend(&line, ", ", sweep.jobs().failed(), " failed");
  if (sweep.jobs().cancelled() > 0) absl::StrAppend(&line, ", ", sweep.jobs().cancelled(), " cancelled");
  if (sweep.diverged() > 0) absl::StrAppend(&line, ", ", sweep.diverged(), " diverged");
  if (sweep.steps_total() > 0) absl::StrAppend(&line, " | step ", sweep.steps_done(), "/", sweep.steps_total());
  if (sweep.tokens_per_second() > 0) absl::StrAppend(&line, " | ", Thousands(sweep.tokens_per_second()), " tokens/s");
  if (seconds_left) absl::StrAppend(&line, " | ", HumanSeconds(*seconds_left), " left");
  if (!sweep.waiting_for().empty()) absl::StrAppend(&line, " | waits for: ", sweep.waiting_for());
  const int room = width - static_cast<int>(DisplayWidth(sweep.name()) + line.size()) - 6;
  std::string bar;
  if (room >= 10) {
    const int cells = std::min(room, 30);
    const int full = static_cast<int>(Share(sweep) * cells);
    bar = absl::StrCat("[", std::string(full, '#'), std::string(cells - full, '.'), "] ");
  }
  line = absl::StrCat(sweep.name(), " ", bar, line);
  if (static_cast<int>(line.size()) > width) line.resize(std::max(width, 0));
  return line;
}

std::optional<double> TimeLeft::Update(const v1::Sweep& sweep, double now_seconds) {
  const double share = Share(sweep);
  if (!start_seconds_) {
    start_seconds_ = now_seconds;
    start_share_ = share;
  }
  const double elapsed = now_seconds - *start_seconds_, gained = share - start_share_;
  if (elapsed < 3 || gained < 0.01) return std::nullopt;
  return elapsed * (1 - share) / gained;
}

Progress::Progress(std::FILE* out, double every_seconds)
    : out_(out), every_seconds_(every_seconds), terminal_(::isatty(::fileno(out)) != 0) {}

int Progress::width() const { return TerminalWidth(::fileno(out_), 200); }

void Progress::Show(const std::string& line) {
  const auto now = std::chrono::steady_clock::now();
  if (terminal_) {
    std::fprintf(out_, "\r\033[K%s", line.c_str());
    shown_ = true;
  } else if (!last_ || std::chrono::duration<double>(now - *last_).count() >= every_seconds_) {
    std::fprintf(out_, "%s\n", line.c_str());
    last_ = now;
  }
  std::fflush(out_);
}

void Progress::Clear() {
  if (shown_) std::fputs("\r\033[K", out_);
  std::fflush(out_);
  shown_ = false;
}

int TerminalWidth(int fd, int otherwise) {
  winsize size = {};
  if (::isatty(fd) == 0 || ::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return otherwise;
  return size.ws_col;
}

}  // namespace ablate
