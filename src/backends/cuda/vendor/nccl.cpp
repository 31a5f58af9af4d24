// NCCL: its entry points, a team's communicator, calls that cannot hang their callers.
// Called by groups, programs, and `tilewire info`.
#include "backends/cuda/vendor/nccl.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <mutex>
#include <utility>

#include "backends/cuda/runtime/driver.hpp"
#include "backends/cuda/vendor/vendor_library.hpp"
#include "backends/host/slot.hpp"
#include "backends/host/thread.hpp"
#include "core/text.hpp"
#include "tilewire/env.hpp"
#include "tilewire/print.hpp"

namespace tilewire::cuda {
namespace {

/// NCCL's declarations, unchanged since version 2.10, so that its header is not needed.
struct NcclId {
  std::array<char, 128> bytes{};
};
using NcclComm = void*;
enum class NcclResult : int { success = 0 };
enum class NcclType : int { int32 = 2, fp16 = 6, fp32 = 7, bf16 = 9 };
enum class NcclSum : int { sum = 0 };

/// The library's entry points.
struct NcclFunctions {
  std::string missing{};  ///< why they cannot be called; empty = they can
  NcclResult (*get_version)(int*) = nullptr;
  const char* (*error_string)(NcclResult) = nullptr;
  NcclResult (*get_id)(NcclId*) = nullptr;
  NcclResult (*init_rank)(NcclComm*, int, NcclId, int) = nullptr;
  NcclResult (*abort)(NcclComm) = nullptr;
  NcclResult (*destroy)(NcclComm) = nullptr;
  NcclResult (*all_gather)(const void*, void*, size_t, NcclType, NcclComm, cudaStream_t) = nullptr;
  NcclResult (*reduce_scatter)(const void*, void*, size_t, NcclType, NcclSum, NcclComm, cudaStream_t) = nullptr;
  NcclResult (*all_reduce)(const void*, void*, size_t, NcclType, NcclSum, NcclComm, cudaStream_t) = nullptr;

  void check(NcclResult result, const char* call) const {
    if (result == NcclResult::success) return;
    fail(ErrorKind::unsupported, "{}: {} (NCCL_DEBUG=WARN says more)", call, error_string(result));
  }
};

NcclFunctions look_up_nccl(const char* name) {
  NcclFunctions all;
  VendorLibrary library("NCCL", {&name, 1});
  library.find(all.get_version, "ncclGetVersion");
  library.find(all.error_string, "ncclGetErrorString");
  library.find(all.get_id, "ncclGetUniqueId");
  library.find(all.init_rank, "ncclCommInitRank");
  library.find(all.abort, "ncclCommAbort");
  library.find(all.destroy, "ncclCommDestroy");
  library.find(all.all_gather, "ncclAllGather");
  library.find(all.reduce_scatter, "ncclReduceScatter");
  library.find(all.all_reduce, "ncclAllReduce");
  all.missing = library.missing();
  return all;
}

/// Set variables that NCCL reads at its first use, unless the user has set them.
void set_defaults() {
  static std::once_flag once;
  std::call_once(once, [] {
    // tilewire uses no NVLink multicast, so NCCL does not use it in comparisons, either (docs/cuda.md).
    env::set_default("NCCL_NVLS_ENABLE", "0");
    // NOTE: between threads of one process NCCL writes directly into tensors. This fails if the other GPU cannot
    // address them, as memory of cudaMallocAsync.
    env::set_default("NCCL_P2P_DIRECT_DISABLE", "1");
  });
}

NcclType nccl_type_of(DType dtype) {
  switch (dtype) {
    case DType::fp32:
      return NcclType::fp32;
    case DType::bf16:
      return NcclType::bf16;
    case DType::fp16:
      return NcclType::fp16;
    case DType::int32:
      return NcclType::int32;
    case DType::fp8_e4m3:
    case DType::int8:
      break;
  }
  fail(ErrorKind::internal, "a collective of {}", to_string(dtype));
}

/// An id as hexadecimal text, and back: ranks exchange JSON.
std::string text_of(const NcclId& id) {
  std::string text;
  for (const char byte : id.bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

NcclId id_of(const std::string& text) {
  NcclId id;
  for (size_t i = 0; i < id.bytes.size(); ++i)
    id.bytes[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  return id;
}

/// Work on a thread of its own, and its error.
struct Aside {
  host::Slot ended;
  std::optional<Error> error{};  ///< valid after `ended`
};

/// Start `work` on a detached thread.
std::shared_ptr<Aside> begin_aside(int device, std::function<void()> work) {
  auto aside = std::make_shared<Aside>();
  host::start_thread([aside, device, work = std::move(work)]() mutable {
    try {
      check(cudaSetDevice(device), "cudaSetDevice");
      work();
    } catch (const Error& error) {
      aside->error.emplace(error);
    } catch (const std::exception& error) {
      aside->error.emplace(ErrorKind::internal, error.what());
    }
    work = nullptr;  // destroy it before `ended` is posted
    host::post(aside->ended, 1);
  }).detach();
  return aside;
}

/// How long NCCL may take: less than the group's deadline, so that waiting ranks get this rank's Error before it.
double patience_s(const host::HostGroup& ranks) { return 0.9 * std::min(ranks.timeout_s(), 1e9); }

/// Execute `work` on a thread of its own, and wait for its end. If peers are lost, or it takes too long, throw and
/// leave the thread behind.
void do_aside(const host::HostGroup& ranks, int device, const char* what, double limit_s, std::function<void()> work) {
  constexpr int64_t kPeriodNs = 5'000'000;
  const int64_t deadline_ns = host::now_ns() + static_cast<int64_t>(limit_s * 1e9);
  const std::shared_ptr<Aside> aside = begin_aside(device, std::move(work));
  while (!host::sleep_until_reached(aside->ended, 1, kPeriodNs)) {
    ranks.check_whole([&] { return fmt::format("{} on rank {} is left behind", what, ranks.rank()); });
    if (host::now_ns() < deadline_ns) continue;
    fail(ErrorKind::unsupported, "{} does not end within {:.1f} s", what, limit_s);
  }
  if (aside->error) throw Error(*aside->error);
}

}  // namespace

std::optional<std::string> missing_nccl(const char* name) {
  const NcclFunctions nccl = look_up_nccl(name);
  if (nccl.missing.empty()) return std::nullopt;
  return nccl.missing;
}

std::string nccl_version(const char* name) {
  const NcclFunctions nccl = look_up_nccl(name);
  int version = 0;
  if (!nccl.missing.empty() || nccl.get_version(&version) != NcclResult::success) return "";
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

/// Shared with threads that may be left behind.
struct Communicator::State {
  NcclFunctions nccl{};
  std::timed_mutex mutex{};  ///< held while NCCL is called with `comm`
  NcclComm comm = nullptr;
  std::atomic<bool> aborted{false};
  std::shared_ptr<Aside> aborting{};

  void enqueue(const LibraryCollective& call, cudaStream_t stream) {
    const std::lock_guard lock(mutex);
    if (aborted) fail(ErrorKind::rank_lost, "NCCL's communicator was aborted");
    const auto type = nccl_type_of(call.dtype);
    const auto from = static_cast<size_t>(call.from_elements);
    const auto to = static_cast<size_t>(call.to_elements);
    switch (call.kind) {
      case Collective::all_gather:
        return nccl.check(nccl.all_gather(call.from, call.to, from, type, comm, stream), "ncclAllGather");
      case Collective::reduce_scatter:
        return nccl.check(nccl.reduce_scatter(call.from, call.to, to, type, NcclSum::sum, comm, stream),
                          "ncclReduceScatter");
      case Collective::all_reduce:
        return nccl.check(nccl.all_reduce(call.from, call.to, from, type, NcclSum::sum, comm, stream), "ncclAllReduce");
      case Collective::none:
      case Collective::all_to_all:
        break;
    }
    fail(ErrorKind::internal, "{} is not called", to_string(call.kind));
  }

  /// Take the communicator to end it, once. NOTE: a thread inside NCCL may not return before the abort, so wait only
  /// briefly for the mutex. Do not hold it during the end, which may wait for graphs.
  NcclComm take() {
    constexpr std::chrono::seconds kPatience{1};
    std::unique_lock lock(mutex, std::defer_lock);
    static_cast<void>(lock.try_lock_for(kPatience));
    return std::exchange(comm, nullptr);
  }

  void leave() {
    if (NcclComm gone = take(); gone != nullptr) nccl.check(nccl.abort(gone), "ncclCommAbort");
  }

  /// Keep the new communicator, or abort it if its rank has given up meanwhile.
  void arrive(NcclComm made) {
    {
      const std::lock_guard lock(mutex);
      comm = made;
    }
    if (aborted) leave();
  }
};

namespace {

class BoundCollective final : public LibraryCall {
 public:
  using Enqueue = std::function<void(const LibraryCollective&, cudaStream_t)>;
  BoundCollective(Enqueue enqueue, const LibraryCollective& call) : enqueue_(std::move(enqueue)), call_(call) {}
  void enqueue(const Bases& bases, cudaStream_t stream) const override {
    LibraryCollective call = call_;
    call.from = resolve(bases, call.from);
    call.to = resolve(bases, call.to);
    enqueue_(call, stream);
  }

 private:
  Enqueue enqueue_;
  LibraryCollective call_;
};

}  // namespace

Communicator::Communicator(host::HostGroup& ranks, int device, const char* name)
    : ranks_(ranks), device_(device), state_(std::make_shared<State>()) {
  const auto ids = host::agree(ranks, [&] {
    state_->nccl = look_up_nccl(name);
    if (!state_->nccl.missing.empty()) fail(ErrorKind::unsupported, "{}", state_->nccl.missing);
    set_defaults();
    NcclId id;
    if (ranks.rank() == 0) state_->nccl.check(state_->nccl.get_id(&id), "ncclGetUniqueId");
    return text_of(id);
  });
  try {
    start(ids[0]);
  } catch (const Error&) {
    abort();
    throw;
  }
}

void Communicator::start(const std::string& id) {
  host::agree(ranks_, [&] {
    const auto join = [state = state_, id = id_of(id), ranks = ranks_.team().num_ranks, rank = ranks_.rank()] {
      NcclComm comm = nullptr;
      state->nccl.check(state->nccl.init_rank(&comm, ranks, id, rank), "ncclCommInitRank");
      state->arrive(comm);
    };
    do_aside(ranks_, device_, "ncclCommInitRank", patience_s(ranks_), join);
    return std::string();
  });
}

Communicator::~Communicator() {
  // NOTE: the end may wait for graphs that have its calls, and for peers that still use it.
  constexpr int64_t kAbortNs = 1'000'000'000;
  constexpr double kDestroyS = 5;
  if (ranks_.segment().broken()) abort();
  if (state_->aborted) {
    if (state_->aborting) static_cast<void>(host::sleep_until_reached(state_->aborting->ended, 1, kAbortNs));
    return;
  }
  try {
    do_aside(ranks_, device_, "ncclCommDestroy", std::min(kDestroyS, patience_s(ranks_)), [state = state_] {
      if (NcclComm comm = state->take(); comm != nullptr)
        state->nccl.check(state->nccl.destroy(comm), "ncclCommDestroy");
    });
  } catch (const Error&) {
    // The library keeps the communicator.
  }
}

void Communicator::prepare(const std::vector<LibraryCollective>& calls) {
  /// NOTE: owned by the thread that uses it, which may be left behind.
  struct Scratch {
    Stream stream;
    std::vector<std::shared_ptr<std::byte>> memory;
    std::vector<LibraryCollective> calls;

    std::byte* add(int64_t bytes) { return memory.emplace_back(new_device_memory(bytes, stream.get())).get(); }
  };
  const auto scratch = std::make_shared<Scratch>();
  host::agree(ranks_, [&] {
    scratch->stream = new_urgent_stream();
    for (LibraryCollective call : calls) {
      call.from = scratch->add(call.from_elements * bytes_of(call.dtype));
      call.to = scratch->add(call.to_elements * bytes_of(call.dtype));
      scratch->calls.push_back(call);
    }
    return std::string();
  });
  const auto call_once = [state = state_, scratch] {
    for (const LibraryCollective& call : scratch->calls) state->enqueue(call, scratch->stream.get());
    check(cudaStreamSynchronize(scratch->stream.get()), "the first call of NCCL");
  };
  try {
    host::agree(ranks_, [&] {
      do_aside(ranks_, device_, "the first call of NCCL", patience_s(ranks_), call_once);
      return std::string();
    });
  } catch (const Error&) {
    abort();
    throw;
  }
}

bool Communicator::aborted() const { return state_->aborted; }

std::unique_ptr<LibraryCall> Communicator::bind(const LibraryCollective& call) const {
  return std::make_unique<BoundCollective>(
      [state = state_](const LibraryCollective& what, cudaStream_t stream) { state->enqueue(what, stream); }, call);
}

void Communicator::abort() {
  if (state_->aborted.exchange(true)) return;
  try {
    state_->aborting = begin_aside(device_, [state = state_] { state->leave(); });
  } catch (const Error&) {
    // The system gives no thread: the communicator's work stays on the device.
  }
}

}  // namespace tilewire::cuda
