// Texts for errno, with the process limit behind it.
// Called through system_call.hpp.
#include "core/system_call.hpp"

#include <sys/resource.h>

#include <array>
#include <cstring>

namespace tilewire {
namespace {

/// A limit of this process, and the errno of calls that exceed it.
struct Limit {
  int error = 0;
  decltype(RLIMIT_NOFILE) resource{};
  const char* flag = "";
  bool of_bytes = false;
};
constexpr std::array kLimits{Limit{EMFILE, RLIMIT_NOFILE, "ulimit -n", false},
                             Limit{ENOMEM, RLIMIT_AS, "ulimit -v", true}, Limit{EFBIG, RLIMIT_FSIZE, "ulimit -f", true},
                             Limit{EAGAIN, RLIMIT_NPROC, "ulimit -u", false},
                             Limit{EAGAIN, RLIMIT_AS, "ulimit -v", true}};

}  // namespace

std::string SystemCall::why() const {
  std::string text = std::strerror(error);
  for (const Limit& limit : kLimits) {
    rlimit now{};
    if (limit.error != error || getrlimit(limit.resource, &now) != 0 || now.rlim_cur == RLIM_INFINITY) continue;
    const auto most = static_cast<int64_t>(now.rlim_cur);
    text += fmt::format(" (the limit is {}: {})", limit.of_bytes ? in_bytes(most) : fmt::to_string(most), limit.flag);
  }
  return text;
}

void require_granted(const SystemCall& call, const std::string& what) {
  if (!call.ok()) fail(ErrorKind::unsupported, "{}: {}", what, call.why());
}

std::string in_bytes(int64_t bytes) {
  constexpr std::array kUnits{"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  auto value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return fmt::format("{:.4g} {}", value, kUnits[unit]);
}

}  // namespace tilewire
