// The table of backends, and the ways to join one.
// Called by users, the command line and launch.
#include <array>
#include <cstring>

#include "backends/cuda/cuda.hpp"
#include "backends/host/group.hpp"
#include "backends/messages.hpp"
#include "backends/tensors.hpp"
#include "core/text.hpp"
#include "tilewire/env.hpp"
#include "tilewire/spi/backend.hpp"

namespace tilewire {
namespace {

constexpr std::array kBackends{
    Backend{"host", "ranks are processes or threads of this machine; symmetric memory is shared memory",
            host::host_unavailable, host::make_host_group},
    Backend{"cuda", "ranks are GPUs of this machine, or shares of one; symmetric memory is theirs",
            cuda::cuda_unavailable, cuda::make_cuda_group},
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

const Backend& available_backend(const std::string& name) {
  const Backend& found = find_backend(name);
  if (const auto reason = found.unavailable()) {
    fail(ErrorKind::unsupported, "backend {} is not available: {}", name, *reason);
  }
  return found;
}

std::unique_ptr<Group> join(const std::string& backend, const JoinOptions& options) {
  return available_backend(backend).make_group(host::join_host(options), options);
}

Target Group::target() const { return host_target(); }

void Group::barrier() { static_cast<void>(exchange(*this, "barrier", {})); }

std::shared_ptr<std::byte> Group::new_memory(int64_t bytes) const {
  require(bytes >= 0, "new_memory: {} bytes", bytes);
  return {new std::byte[static_cast<size_t>(bytes)], std::default_delete<std::byte[]>()};
}

void Group::copy(void* to, const void* from, int64_t bytes) const {
  require_copy(to, from, bytes);
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

JoinOptions join_options_from_env() {
  JoinOptions options;
  const auto place = env::place();
  require(place.has_value(), "{}: start the ranks by a launcher (mpirun, torchrun), or set both",
          env::half_place().value_or("RANK is not set, nor WORLD_SIZE"));
  options.rank = place->rank;
  options.num_ranks = place->num_ranks;
  options.job = env::job();
  options.timeout_s = env::timeout_s();
  options.local_rank = place->local_rank;
  return options;
}

}  // namespace tilewire
