// NCCL's entry points for ranks that are threads: they meet, and copy or sum floats in host memory.
// Built as a library of its own, which nccl_test.cpp loads.
#include "cuda/fake_nccl.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

using tilewire::testing::FakeNccl;
using tilewire::testing::FakeNcclUse;

namespace {

constexpr int kSuccess = 0;
constexpr int kSystemError = 2;

struct Id {
  char bytes[128];
};

/// The ranks of a communicator, and their data in the present call.
struct Team {
  std::vector<const char*> given;
  int come = 0;
  int rounds = 0;
};

struct Comm {
  std::shared_ptr<Team> team;
  int rank = 0;
  bool aborted = false;
};

std::mutex mutex;
std::condition_variable changed;
std::map<std::string, std::shared_ptr<Team>> teams;
FakeNccl behaviour = FakeNccl::works;
FakeNcclUse use;
int last_id = 0;

/// Wait for all ranks. False if the communicator was aborted.
bool meet(std::unique_lock<std::mutex>& lock, Comm& comm) {
  Team& team = *comm.team;
  const int round = team.rounds;
  if (++team.come == static_cast<int>(team.given.size())) {
    team.come = 0;
    ++team.rounds;
    changed.notify_all();
    return true;
  }
  changed.wait(lock, [&] { return team.rounds != round || comm.aborted; });
  return team.rounds != round;
}

/// Give `from`, and take the result that `take` makes of all ranks' data.
template <class Take>
int collect(void* handle, const void* from, const Take& take) {
  auto& comm = *static_cast<Comm*>(handle);
  std::unique_lock lock(mutex);
  const bool hangs = behaviour == FakeNccl::hangs_in_calls && comm.rank == 1;
  if (hangs) changed.wait(lock, [&] { return comm.aborted; });
  comm.team->given[comm.rank] = static_cast<const char*>(from);
  if (hangs || !meet(lock, comm)) return kSystemError;
  take(comm.team->given, comm.rank);
  return meet(lock, comm) ? kSuccess : kSystemError;
}

/// `count` sums of floats, from element `first` of the ranks' data.
void add_up(const std::vector<const char*>& given, size_t first, size_t count, void* to) {
  auto* sums = static_cast<float*>(to);
  for (size_t i = 0; i < count; ++i) {
    sums[i] = 0;
    for (const char* from : given) sums[i] += reinterpret_cast<const float*>(from)[first + i];
  }
}

}  // namespace

extern "C" {

void fake_nccl_does(FakeNccl what) {
  const std::lock_guard lock(mutex);
  behaviour = what;
  changed.notify_all();
}

FakeNcclUse fake_nccl_use() {
  const std::lock_guard lock(mutex);
  return use;
}

int ncclGetVersion(int* version) {
  *version = 22809;
  return kSuccess;
}

const char* ncclGetErrorString(int) { return "an error of the fake NCCL"; }

int ncclGetUniqueId(Id* id) {
  const std::lock_guard lock(mutex);
  *id = {};
  id->bytes[0] = static_cast<char>(++last_id);
  id->bytes[127] = '\xAB';
  return kSuccess;
}

int ncclCommInitRank(void** handle, int ranks, Id id, int rank) {
  std::unique_lock lock(mutex);
  if (behaviour == FakeNccl::fails_in_init && rank == 1) return kSystemError;
  if (behaviour == FakeNccl::hangs_in_init && rank == 1)
    changed.wait(lock, [] { return behaviour == FakeNccl::works; });
  auto& team = teams[std::string(id.bytes, sizeof id.bytes)];
  if (!team) team = std::make_shared<Team>(Team{.given = std::vector<const char*>(ranks)});
  *handle = new Comm{team, rank};
  ++use.made;
  return kSuccess;
}

int ncclCommDestroy(void* handle) {
  const std::lock_guard lock(mutex);
  delete static_cast<Comm*>(handle);
  ++use.destroyed;
  return kSuccess;
}

/// NOTE: calls may still be inside, so their data stay.
int ncclCommAbort(void* handle) {
  const std::lock_guard lock(mutex);
  static_cast<Comm*>(handle)->aborted = true;
  ++use.aborted;
  changed.notify_all();
  return kSuccess;
}

int ncclAllGather(const void* from, void* to, size_t count, int type, void* comm, void*) {
  const size_t bytes = count * (type == 7 || type == 2 ? 4 : 2);
  return collect(comm, from, [&](const auto& given, int) {
    for (size_t rank = 0; rank < given.size(); ++rank) {
      std::memcpy(static_cast<char*>(to) + rank * bytes, given[rank], bytes);
    }
  });
}

int ncclReduceScatter(const void* from, void* to, size_t count, int, int, void* comm, void*) {
  return collect(comm, from, [&](const auto& given, int rank) { add_up(given, rank * count, count, to); });
}

int ncclAllReduce(const void* from, void* to, size_t count, int, int, void* comm, void*) {
  return collect(comm, from, [&](const auto& given, int) { add_up(given, 0, count, to); });
}

}  // extern "C"
