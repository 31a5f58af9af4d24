// Ranks choose their devices, and share memory.
// Called by users through Group, and by programs.
#include "backends/cuda/runtime/group.hpp"

#include <algorithm>
#include <cctype>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <utility>

#include "backends/cuda/kernels/gemm_tiles.hpp"
#include "backends/cuda/runtime/callers_stream.hpp"
#include "backends/cuda/runtime/chunks.hpp"
#include "backends/cuda/runtime/facts.hpp"
#include "backends/tensors.hpp"
#include "core/json_text.hpp"
#include "core/text.hpp"
#include "tilewire/env.hpp"

namespace tilewire::cuda {
namespace {

using nlohmann::json;

json read_back(const std::vector<std::string>& texts) {
  json all = json::array();
  for (const std::string& text : texts) all.push_back(parse_json(text, "a GPU"));
  return all;
}

/// Two ranks on one GPU must be threads of one process: only then can their kernels be resident together.
void require_room_for_all(const host::HostGroup& ranks, const json& gpus) {
  for (size_t rank = 0; rank < gpus.size(); ++rank) {
    for (size_t other = rank + 1; ranks.separate() && other < gpus.size(); ++other) {
      if (ranks.segment().rank(static_cast<int>(rank)).pid == ranks.segment().rank(static_cast<int>(other)).pid) {
        fail(ErrorKind::unsupported, "ranks {} and {} joined one by one from one process: launch them as its threads",
             rank, other);
      }
      if (gpus[rank]["uuid"] != gpus[other]["uuid"]) continue;
      fail(ErrorKind::unsupported,
           "ranks {} and {} are processes that share one GPU ({}): ranks that share a GPU must be threads of one "
           "process",
           rank, other, gpus[rank]["uuid"].get<std::string>());
    }
    if (ranks.separate() && gpus.size() > 1 && !gpus[rank]["descriptors"].get<bool>()) {
      fail(ErrorKind::unsupported, "the GPU of rank {} cannot share memory between processes", rank);
    }
  }
}

/// UUIDs of GPUs in whose memory this one has no atomic additions.
std::vector<std::string> peers_without_atomics(const Driver& driver, const Gpu& gpu) {
  std::vector<std::string> peers;
  for (const PeerAccess& peer : gpu.peers) {
    if (!peer.atomics) peers.push_back(describe_gpu(driver, peer.gpu).uuid);
  }
  return peers;
}

/// Signals are counters to which peers add. NOTE: a process that sees only its own GPU knows nothing of the others.
void require_atomics(const json& gpus) {
  for (size_t rank = 0; rank < gpus.size(); ++rank) {
    const auto without = gpus[rank]["no_atomics"].get<std::vector<std::string>>();
    for (size_t other = 0; other < gpus.size(); ++other) {
      if (std::ranges::find(without, gpus[other]["uuid"].get<std::string>()) == without.end()) continue;
      fail(ErrorKind::unsupported,
           "the GPU of rank {} cannot do atomic operations in the memory of the GPU of rank {}: they need NVLink "
           "between them",
           rank, other);
    }
  }
}

/// The links between H200s, as measured; other links stay unknown.
void fill_in_links(Team& team, const json& gpus) {
  constexpr double kNvlinkCopyGBps = 389;
  constexpr double kCopyUs = 2;
  team.links.assign(gpus.size() * gpus.size(), Link{});
  for (size_t from = 0; from < gpus.size(); ++from) {
    const auto sharing =
        std::count_if(gpus.begin(), gpus.end(), [&](const json& gpu) { return gpu["uuid"] == gpus[from]["uuid"]; });
    team.devices.push_back(
        {.copy_engines = gpus[from]["copy_engines"], .sms = gpus[from]["sms"].get<int>() / static_cast<int>(sharing)});
    for (size_t to = 0; to < gpus.size(); ++to) {
      const auto is_h200 = [](const json& gpu) {
        return gpu["name"].get<std::string>().find("H200") != std::string::npos;
      };
      if (gpus[from]["uuid"] == gpus[to]["uuid"] || !is_h200(gpus[from]) || !is_h200(gpus[to])) continue;
      team.links[from * gpus.size() + to] = {Reach::load_store, kNvlinkCopyGBps, kCopyUs};
    }
  }
}

/// SMs of the current device on which clusters of 0, 1, 2 ... CTAs of the GEMM kernel can be resident.
std::vector<int> sms_of_clusters() {
  const GemmBodyKind body{.dtype = DType::bf16, .shape = {128, 128}};
  load_gemm_tiles(body);
  std::vector<int> sms{0};
  for (uint32_t ctas = 1; ctas <= kMostCluster; ++ctas) sms.push_back(static_cast<int>(resident_ctas(body, ctas)));
  return sms;
}

/// "h200" if all GPUs are "NVIDIA H200", "gpu" if they differ.
std::string kind_of_gpus(const json& gpus) {
  std::string kind;
  for (const json& gpu : gpus) {
    std::istringstream words(gpu["name"].get<std::string>());
    std::string found = "gpu";
    for (std::string word; words >> word;) {
      const bool is_kind = word.size() > 1 && std::isupper(word[0]) != 0 && std::isdigit(word[1]) != 0;
      if (!is_kind || found != "gpu") continue;
      found = word;
      std::ranges::transform(found, found.begin(),
                             [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
    }
    if (!kind.empty() && kind != found) return "gpu";
    kind = found;
  }
  return kind;
}

}  // namespace

CudaGroup::CudaGroup(std::unique_ptr<host::HostGroup> ranks, const JoinOptions& options)
    : ranks_(std::move(ranks)), exceptions_(std::uncaught_exceptions()), team_(ranks_->team()), reachable_(team_.rank) {
  host::or_tell(*ranks_, [&] { start(options); });
}

void CudaGroup::start(const JoinOptions& options) {
  choose_device(options);
  using Use = SymmetricMemory::Use;
  const auto memory = [&](Use use) {
    return std::make_unique<SymmetricMemory>(*ranks_, driver_, devices_, options.arena_bytes, use);
  };
  memory_ = memory(Use::arena);
  workspace_ = memory(Use::workspace);
  // NOTE: of one limit, so the copies are equally far apart on all ranks.
  copies_[0] = memory(Use::first_copy);
  copies_[1] = memory(Use::second_copy);
  const host::Extent head = back_with_memory(ranks_->carve("the head of the arena", kHeadBytes));
  ensure(head.offset == 0, "the head of the arena lies at {}", head.offset);
  zero(head);
  failures_ = std::make_unique<Failures>(reinterpret_cast<const WaitFailure*>(status_page()));
  order_ = options.order;
  calls_ = std::make_unique<CallSequence>(order_, shares_device_);
  watch_ = std::make_unique<AbortWatch>(ranks_->segment(), driver_, device_, &this->head(rank())->abort,
                                        reinterpret_cast<uint32_t*>(status_page() + kStopOffset),
                                        AbortWatch::Calls{.look = [this] { static_cast<void>(find_failure()); },
                                                          .leave = [this] { abort_communicator(); }});
}

CudaGroup::~CudaGroup() {
  if (std::uncaught_exceptions() > exceptions_) {
    fail_with(Error(ErrorKind::rank_lost, fmt::format("rank {} ended with an error", rank())));
  }
  // NOTE: no kernel may still use the memory. Waits of kernels end by their deadlines, or by the watch.
  if (cudaSetDevice(device_) == cudaSuccess) static_cast<void>(cudaDeviceSynchronize());
}

void CudaGroup::choose_device(const JoinOptions& options) {
  const json gpus = read_back(agree(*ranks_, [&] {
    driver_ = load_driver();
    device_ = (options.local_rank >= 0 ? options.local_rank : rank()) % num_gpus();
    check(cudaSetDevice(device_), "cudaSetDevice");
    status_page_ = new_host_memory(kStatusBytes);
    stream_ = new_urgent_stream();
    call_stream_ = new_urgent_stream();
    const Gpu gpu = describe_gpu(driver_, device_);
    if (!gpu.virtual_memory) fail(ErrorKind::unsupported, "GPU {} has no virtual memory management", device_);
    if (gpu.capability != kCapability) {
      fail(ErrorKind::unsupported, "GPU {} ({}) has compute capability {}, the kernels are for {}", device_, gpu.name,
           gpu.capability, kCapability);
    }
    return json_text({{"device", device_},
                      {"no_atomics", peers_without_atomics(driver_, gpu)},
                      {"name", gpu.name},
                      {"uuid", gpu.uuid},
                      {"sms", options.sms > 0 ? std::min(options.sms, gpu.sms) : gpu.sms},
                      {"whole", options.sms == 0 || options.sms >= gpu.sms},
                      {"cluster_sms", sms_of_clusters()},
                      {"copy_engines", gpu.copy_engines},
                      {"descriptors", gpu.descriptors}});
  }));
  require_room_for_all(*ranks_, gpus);
  require_atomics(gpus);
  for (const json& gpu : gpus) devices_.push_back(gpu["device"]);
  whole_gpus_ = std::ranges::all_of(gpus, [](const json& gpu) { return gpu["whole"].get<bool>(); });
  fill_in_links(team_, gpus);
  for (const json& gpu : gpus) {
    const auto mine = gpu["cluster_sms"].get<std::vector<int>>();
    if (cluster_sms_.empty()) cluster_sms_ = mine;
    std::ranges::transform(cluster_sms_, mine, cluster_sms_.begin(), [](int x, int y) { return std::min(x, y); });
  }
  std::map<std::string, int> kinds;
  for (size_t i = 0; i < gpus.size(); ++i) {
    ++kinds[fmt::format("{}, {} SMs", gpus[i]["name"].get<std::string>(), team_.devices[i].sms)];
  }
  for (const auto& [kind, ranks] : kinds)
    hardware_ += fmt::format("{}{} x {}", hardware_.empty() ? "" : "; ", ranks, kind);
  kind_ = kind_of_gpus(gpus);
  // NOTE: of the whole team: if some ranks share a device, its restrictions hold for all ranks.
  std::set<std::string> different;
  for (const json& gpu : gpus) different.insert(gpu["uuid"]);
  shares_device_ = different.size() < gpus.size();
  // NOTE: in one queue, the work of a rank waits for the calls of other ranks, and these wait for its own call.
  if (shares_device_ && env::device_connections() == 1) {
    fail(ErrorKind::unsupported, "{} ranks share {} GPUs, and CUDA_DEVICE_MAX_CONNECTIONS=1 gives each GPU one queue",
         gpus.size(), different.size());
  }
}

host::Extent CudaGroup::back_with_memory(const host::Extent& extent) {
  const CurrentDevice device(driver_, device_);
  try {
    memory_->grow_to(extent.offset + extent.bytes);
    ReachableMemory::Part arena{{}, memory_->backed()};
    for (int rank = 0; rank < team_.num_ranks; ++rank) arena.at.push_back(memory_->base(rank));
    reachable_.set_arena(std::move(arena));
  } catch (const Error&) {
    give_back(extent);
    throw;
  }
  return extent;
}

void CudaGroup::zero(const host::Extent& extent) {
  agree(*ranks_, [&] {
    if (extent.bytes == 0) return std::string();
    check(cudaMemsetAsync(at(rank(), extent.offset), 0, static_cast<size_t>(extent.bytes), stream_.get()),
          "cudaMemsetAsync");
    check(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
    return std::string();
  });
}

host::Extent CudaGroup::carve(const std::string& what, int64_t bytes) {
  settle_what_was_freed();
  return back_with_memory(ranks_->carve(what, bytes));
}

/// NOTE: streams may still have work on a freed tensor, and the next user of its memory writes there at once. All ranks
/// come here before any of them gets the memory.
void CudaGroup::settle_what_was_freed() {
  if (!std::exchange(has_freed_, false)) return;
  const CurrentDevice device(driver_, device_);
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

Tensor CudaGroup::allocate(DType dtype, int64_t rows, int64_t cols) {
  const CurrentDevice device(driver_, device_);
  settle_what_was_freed();
  const host::Extent extent = back_with_memory(ranks_->carve_tensor(dtype, rows, cols));
  try {
    zero(extent);
  } catch (const Error&) {
    ranks_->give_back_tensor(extent.offset);
    throw;
  }
  return make_tensor(at(rank(), extent.offset), dtype, rows, cols);
}

void CudaGroup::free(const Tensor& tensor) {
  if (tensor.rows == 0 || tensor.cols == 0) return;
  has_freed_ = true;
  ranks_->give_back_tensor(static_cast<std::byte*>(tensor.data) - at(rank(), 0));
}

Library& CudaGroup::library() {
  if (!library_) library_ = std::make_unique<Library>(stream_.get());
  return *library_;
}

void CudaGroup::reserve_workspace(int64_t bytes) {
  const CurrentDevice device(driver_, device_);
  require(bytes <= workspace_->limit(), "workspace of {} bytes, want at most {}, the arena's limit", bytes,
          workspace_->limit());
  workspace_->grow_to(bytes);
}

void CudaGroup::reserve_copies(int64_t bytes) {
  const CurrentDevice device(driver_, device_);
  for (const auto& copy : copies_) {
    require(bytes <= copy->limit(), "LL data of {} bytes, want at most {}, the arena's limit", bytes, copy->limit());
    const int64_t before = copy->backed();
    copy->grow_to(bytes);
    if (copy->backed() == before) continue;
    check(
        cudaMemsetAsync(copy->base(rank()) + before, 0xFF, static_cast<size_t>(copy->backed() - before), stream_.get()),
        "cudaMemsetAsync");
    check(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
  }
}

std::byte* CudaGroup::library_workspace() {
  if (!library_workspace_) library_workspace_ = new_device_memory(kLibraryWorkspace, stream_.get());
  return library_workspace_.get();
}

void CudaGroup::prepare(const std::vector<LibraryCollective>& calls) {
  const bool in_use = communicator_ != nullptr && !communicator_->aborted();
  try {
    if (!communicator_) {
      auto made = std::make_unique<Communicator>(*ranks_, device_);
      const std::lock_guard lock(communicator_mutex_);
      communicator_ = std::move(made);
    }
    // The watch may have run before the communicator existed.
    if (ranks_->segment().broken()) abort_communicator();
    communicator_->prepare(calls);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::unsupported || (communicator_ && communicator_->aborted())) {
      no_communicator_ = error.what();
    }
    // Operators that were loaded before, and graphs with their calls, would end without having moved any data.
    if (in_use && communicator_->aborted()) fail_with(error);
    throw;
  }
}

std::unique_ptr<LibraryCall> CudaGroup::bind(const LibraryCollective& call) const { return communicator_->bind(call); }

void CudaGroup::abort_communicator() {
  const std::lock_guard lock(communicator_mutex_);
  if (communicator_) communicator_->abort();
}

void CudaGroup::adopt(const std::vector<std::byte*>& at, int64_t bytes) {
  adopt_together(*ranks_, reachable_, at, bytes);
}

std::shared_ptr<std::byte> CudaGroup::new_memory(int64_t bytes) const {
  require(bytes >= 0, "new_memory: {} bytes", bytes);
  const CurrentDevice device(driver_, device_);
  return new_device_memory(bytes);
}

bool CudaGroup::captures(void* stream) const { return capture_of(callers_stream(stream, shares_device_)) != 0; }

void CudaGroup::copy(void* to, const void* from, int64_t bytes) const {
  require_copy(to, from, bytes);
  const CurrentDevice device(driver_, device_);
  copy_now(to, from, bytes);
}

WaitWatch CudaGroup::watch_of(uint32_t owner) const {
  return {.timeout_ns = static_cast<uint64_t>(std::min(ranks_->timeout_s(), 1e9) * 1e9),
          .abort = &head(rank())->abort,
          .failure = reinterpret_cast<WaitFailure*>(status_page()),
          .stop = reinterpret_cast<const uint32_t*>(status_page() + kStopOffset),
          .calls = order_ == CallOrder::stream && !shares_device_ ? &head(rank())->calls : nullptr,
          .owner = owner};
}

std::optional<Error> CudaGroup::find_failure() {
  const std::optional<Error> failure = failures_->first();
  if (failure) ranks_->fail_with(*failure);
  return failure;
}

std::unique_ptr<Group> make_cuda_group(std::unique_ptr<host::HostGroup> ranks, const JoinOptions& options) {
  return std::make_unique<CudaGroup>(std::move(ranks), options);
}

}  // namespace tilewire::cuda
