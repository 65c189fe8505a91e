#include "base/sandbox.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <iterator>
#include <utility>

#include "base/files.h"

namespace ablate {
namespace {

// ---- Landlock, by number: the headers of Debian 12 know its first version only. ----

constexpr uint64_t kExecute = 1 << 0, kWriteFile = 1 << 1, kReadFile = 1 << 2, kReadDir = 1 << 3;
constexpr uint64_t kReading = kReadFile | kReadDir | kExecute;
constexpr uint64_t kRightsOfVersion1 = (1 << 13) - 1;
constexpr uint64_t kRefer = 1 << 13, kTruncate = 1 << 14, kIoctlDevice = 1 << 15;
// No links, devices, sockets or named pipes: whoever finds one in the child's folder would follow it.
constexpr uint64_t kMakeOther = 1 << 6 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12;
constexpr uint64_t kRightsOnFiles = kExecute | kWriteFile | kReadFile | kTruncate | kIoctlDevice;
constexpr uint64_t kBindTcp = 1 << 0, kConnectTcp = 1 << 1;
constexpr uint64_t kScopeAbstractSockets = 1 << 0, kScopeSignals = 1 << 1;

struct RulesetAttributes {
  uint64_t fs = 0, net = 0, scoped = 0;
};

int LandlockVersion() {
  return static_cast<int>(
      ::syscall(SYS_landlock_create_ruleset, nullptr, size_t{0}, 1u << 0 /* LANDLOCK_CREATE_RULESET_VERSION */));
}

uint64_t FileRights(int version) {
  return kRightsOfVersion1 | (version >= 2 ? kRefer : 0) | (version >= 3 ? kTruncate : 0) |
         (version >= 5 ? kIoctlDevice : 0);
}

// Async-signal-safe. Absent paths are fine.
int Allow(int ruleset, const char* path, uint64_t rights) {
  landlock_path_beneath_attr rule = {};
  rule.parent_fd = ::open(path, O_PATH | O_CLOEXEC);
  if (rule.parent_fd < 0) return errno == ENOENT || errno == ENOTDIR ? 0 : errno;
  struct stat info = {};
  rule.allowed_access = ::fstat(rule.parent_fd, &info) == 0 && S_ISDIR(info.st_mode) ? rights : rights & kRightsOnFiles;
  const long result = ::syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0u);
  const int error = result == 0 ? 0 : errno;
  ::close(rule.parent_fd);
  return error;
}

// ---- seccomp ----

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "name the architecture of this machine for seccomp"
#endif

// Into other processes, the kernel, or the system's settings. io_uring would make sockets past this filter.
constexpr int kForbidden[] = {
#if !defined(__SANITIZE_ADDRESS__)  // its leak check stops its own threads so
    SYS_ptrace,
#endif
    SYS_process_vm_readv, SYS_process_vm_writev, SYS_pidfd_getfd, SYS_kcmp, SYS_bpf, SYS_perf_event_open, SYS_userfaultfd,
    SYS_add_key, SYS_request_key, SYS_keyctl, SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_open_tree,
    SYS_move_mount, SYS_fsopen, SYS_fsconfig, SYS_fsmount, SYS_fspick, SYS_mount_setattr, SYS_unshare, SYS_setns,
    SYS_kexec_load, SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_reboot, SYS_swapon, SYS_swapoff, SYS_acct,
    SYS_quotactl, SYS_open_by_handle_at, SYS_syslog, SYS_settimeofday, SYS_clock_settime, SYS_adjtimex, SYS_clock_adjtime,
    SYS_sethostname, SYS_setdomainname, SYS_personality};

constexpr sock_filter Statement(uint16_t code, uint32_t k) { return {code, 0, 0, k}; }
constexpr sock_filter Jump(uint32_t k, uint8_t if_true, uint8_t if_false, uint16_t test = BPF_JEQ) {
  return {static_cast<uint16_t>(BPF_JMP | test | BPF_K), if_true, if_false, k};
}
constexpr sock_filter Load(size_t offset) {
  return Statement(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset));
}
constexpr sock_filter Refuse(int error) {
  return Statement(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error));
}

struct Program {
  static constexpr size_t kMax = 2 * std::size(kForbidden) + 48;
  sock_filter code[kMax];
  uint16_t size = 0;
  void Add(const sock_filter& statement) { code[size++] = statement; }
  void RefuseCall(int call, int error) {
    Add(Jump(static_cast<uint32_t>(call), 0, 1));
    Add(Refuse(error));
  }
};

// On the stack of the child: it allocates nothing.
Program MakeProgram(bool local_sockets) {
  Program program;
  program.Add(Load(offsetof(seccomp_data, arch)));
  program.Add(Jump(kArchitecture, 1, 0));
  program.Add(Statement(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  program.Add(Load(offsetof(seccomp_data, nr)));
#if defined(__x86_64__)
  program.Add(Jump(0x40000000, 0, 1, BPF_JGE));  // x32 numbers calls otherwise
  program.Add(Refuse(ENOSYS));
#endif
  for (const int call : kForbidden) program.RefuseCall(call, EPERM);
  for (const int call : {SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register}) program.RefuseCall(call, ENOSYS);
  // Its flags lie in memory, where a filter cannot look; the C library then takes clone.
  program.RefuseCall(SYS_clone3, ENOSYS);
  // A user namespace would bring back rights that the process lacks.
  program.Add(Jump(SYS_clone, 0, 4));
  program.Add(Load(offsetof(seccomp_data, args[0])));
  program.Add(Jump(CLONE_NEWUSER, 0, 1, BPF_JSET));
  program.Add(Refuse(EPERM));
  program.Add(Statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  program.Add(Jump(SYS_socket, 1, 0));
  program.Add(Statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  if (local_sockets) {
    program.Add(Load(offsetof(seccomp_data, args[0])));
    program.Add(Jump(AF_UNIX, 2, 0));
    program.Add(Jump(AF_NETLINK, 1, 0));
    program.Add(Refuse(EACCES));
    program.Add(Statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  } else {
    program.Add(Refuse(EACCES));
  }
  return program;
}

int EnterFilter(bool local_sockets) {
  Program program = MakeProgram(local_sockets);
  const sock_fprog filter = {program.size, program.code};
  return ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0 ? 0 : errno;
}

constexpr int kNoFilter = 1, kNoFiles = 2, kProbeFailed = 64;

int Probe() {
  const pid_t child = ::fork();
  if (child < 0) return kNoFilter | kNoFiles;
  if (child == 0) {
    int missing = LandlockVersion() >= 1 ? 0 : kNoFiles;
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || EnterFilter(false) != 0) missing |= kNoFilter;
    ::_exit(missing);
  }
  int status = 0;
  pid_t done = 0;
  do {
    done = ::waitpid(child, &status, 0);
  } while (done < 0 && errno == EINTR);
  return done == child && WIFEXITED(status) ? WEXITSTATUS(status) : kNoFilter | kProbeFailed;
}

int Support() {
  static const int missing = Probe();
  return missing;
}

}  // namespace

std::vector<std::string> Sandbox::Missing() {
  std::vector<std::string> missing;
  if ((Support() & kNoFilter) != 0) missing.emplace_back("seccomp filters (no socket, no tracing of processes)");
  if ((Support() & kNoFiles) != 0) missing.emplace_back("Landlock (no files but its own)");
  return missing;
}

absl::StatusOr<std::shared_ptr<const Sandbox>> Sandbox::Prepare(const SandboxOptions& options) {
  std::shared_ptr<Sandbox> sandbox(new Sandbox);
  sandbox->filter_ = (Support() & kNoFilter) == 0;
  sandbox->local_sockets_ = options.local_sockets;
  if (!options.restrict_files || (Support() & kNoFiles) != 0) return sandbox;

  const int version = LandlockVersion();
  RulesetAttributes attributes;
  attributes.fs = FileRights(version);
  // A second lock beside the filter's.
  if (version >= 4) attributes.net = kBindTcp | kConnectTcp;
  if (version >= 6) attributes.scoped = kScopeAbstractSockets | kScopeSignals;
  const size_t size = version >= 6 ? sizeof(attributes) : version >= 4 ? 16 : 8;
  sandbox->ruleset_ = static_cast<int>(::syscall(SYS_landlock_create_ruleset, &attributes, size, 0u));
  if (sandbox->ruleset_ < 0) return FileError("cannot restrict", "the files of a child", errno);
  for (const auto& [paths, rights] : {std::pair(&options.readable, kReading), {&options.writable, attributes.fs & ~kMakeOther}}) {
    for (const std::string& path : *paths) {
      if (path.empty()) continue;
      if (const int error = Allow(sandbox->ruleset_, path.c_str(), rights); error != 0)
        return FileError("cannot let a child use", path, error);
    }
  }
  return sandbox;
}

Sandbox::~Sandbox() {
  if (ruleset_ >= 0) ::close(ruleset_);
}

int Sandbox::Enter() const {
  const rlimit none = {0, 0};
  if (::setrlimit(RLIMIT_CORE, &none) != 0) return errno;
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return errno;
  if (ruleset_ >= 0) {
    // Its own entry of /proc, which is known only here; all of /proc would show root the environment of other processes.
    if (const int error = Allow(ruleset_, "/proc/self", kReading); error != 0) return error;
    if (::syscall(SYS_landlock_restrict_self, ruleset_, 0u) != 0) return errno;
  }
  if (filter_) {
    if (const int error = EnterFilter(local_sockets_); error != 0) return error;
  }
  return 0;
}

}  // namespace ablate
