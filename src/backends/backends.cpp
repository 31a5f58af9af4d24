// The table of backends, and the ways to join one.
// Called by users, the command line and launch.
#include <array>

#include "backends/host/group.hpp"
#include "core/text.hpp"
#include "tilewire/backend.hpp"
#include "tilewire/env.hpp"

namespace tilewire {
namespace {

constexpr std::array kBackends{
    Backend{"host", "ranks are processes or threads of this machine; symmetric memory is shared memory",
            host::host_unavailable, host::join_host},
};

}  // namespace

std::span<const Backend> backends() { return kBackends; }

const Backend& find_backend(const std::string& name) {
  std::string known;
  for (const Backend& backend : kBackends) {
    if (name == backend.name) return backend;
    known += (known.empty() ? "" : ", ") + std::string(backend.name);
  }
  fail(ErrorKind::invalid_input, "no backend is called '{}'; known: {}", name, known);
}

std::unique_ptr<Group> join(const std::string& backend, const JoinOptions& options) {
  const Backend& found = find_backend(backend);
  if (const auto reason = found.unavailable()) fail(ErrorKind::unsupported, "backend {}: {}", backend, *reason);
  return found.join(options);
}

JoinOptions join_options_from_env() {
  JoinOptions options;
  const auto rank = env::rank();
  const auto num_ranks = env::num_ranks();
  require(rank.has_value(), "RANK is not set: start the ranks by a launcher (mpirun, torchrun), or set it");
  require(num_ranks.has_value(), "WORLD_SIZE is not set: start the ranks by a launcher (mpirun, torchrun), or set it");
  options.rank = *rank;
  options.num_ranks = *num_ranks;
  require(options.num_ranks >= 1 && options.rank >= 0 && options.rank < options.num_ranks,
          "RANK {} of WORLD_SIZE {}: want 0 to WORLD_SIZE - 1", options.rank, options.num_ranks);
  options.job = env::job();
  options.timeout_s = env::timeout_s();
  return options;
}

}  // namespace tilewire
