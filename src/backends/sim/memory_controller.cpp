// Requests of two streams, one DRAM queue, and bank groups that an op-and-store occupies for longer.
// Called by the engine.
#include "backends/sim/memory_controller.hpp"

#include <algorithm>

namespace tilewire::sim {
namespace {

constexpr int kBlockBytes = 256;  // blocks of this size are in one bank group

int index_of(Stream stream) { return static_cast<int>(stream); }
int index_of(AccessKind kind) { return static_cast<int>(kind); }

Time ps(double ns) { return static_cast<Time>(ns * kPsPerNs + 0.5); }

}  // namespace

ChannelController::ChannelController(const MemoryController& controller, double bandwidth_GBps)
    : config_(controller),
      bus_time_(ps(static_cast<double>(controller.request_bytes) * controller.channels / bandwidth_GBps)),
      patience_(ps(controller.starvation_clocks / controller.clock_GHz)),
      request_share_(static_cast<double>(controller.request_bytes) * controller.channels),
      group_free_(controller.bank_groups) {
  const double columns = static_cast<double>(controller.request_bytes) / controller.column_bytes;
  const Time plain = ps(columns * controller.column_clocks / controller.clock_GHz);
  const bool near = controller.near_memory == NearMemory::op_and_store;
  group_time_ = {plain, plain, near ? ps(columns * controller.update_clocks / controller.clock_GHz) : plain};
  queue_.reserve(controller.queue);
}

bool ChannelController::ask(const Access& access, int owner, Time now) {
  double& rest = left_over_[index_of(access.stream)][index_of(access.kind)];
  rest += access.bytes * (moves_twice(access.kind) ? 2 : 1) / request_share_;
  constexpr double kRounding = 1e-9;
  const auto count = static_cast<int64_t>(rest + kRounding);
  if (count == 0) return false;
  rest -= static_cast<double>(count);
  now_ = std::max(now_, now);
  if (free_.empty()) {
    free_.push_back(static_cast<int>(accesses_.size()));
    accesses_.emplace_back();
  }
  accesses_[free_.back()] = {owner, access.kind, access.latency_ns, count, count, blocks_, access.stream};
  asked_[index_of(access.stream)].push_back(free_.back());
  free_.pop_back();
  blocks_ += static_cast<uint32_t>(count * config_.request_bytes / kBlockBytes + 1);
  if (std::ssize(queue_) < config_.queue) plan_next();
  return true;
}

// The mean length of the queue while only the kernel has requests shows how much memory it needs. The longer the queue,
// the lower the threshold of communication. No threshold if the mean stays below the lowest one.
void ChannelController::measure_intensity() {
  if (measured_ || num_measured_ == 0) return;
  measured_ = true;
  const double mean = occupancy_ / static_cast<double>(num_measured_);
  std::vector<int> rising = config_.thresholds;
  std::ranges::sort(rising);
  for (size_t i = 0; i < rising.size(); ++i) {
    if (mean >= rising[i]) threshold_ = rising[rising.size() - 1 - i];
  }
}

std::optional<Stream> ChannelController::next_stream() const {
  const bool compute = !asked_[index_of(Stream::compute)].empty();
  const bool communication = !asked_[index_of(Stream::communication)].empty();
  if (!communication) return compute ? std::optional(Stream::compute) : std::nullopt;
  if (config_.arbitration == Arbitration::round_robin) return compute ? turn_ : Stream::communication;
  const bool aware = config_.arbitration == Arbitration::communication_aware;
  if (aware && now_ - last_communication_ > patience_) return Stream::communication;
  if (compute) return Stream::compute;
  if (aware && !draining_ && threshold_ && std::ssize(queue_) >= *threshold_) return std::nullopt;
  return Stream::communication;
}

void ChannelController::pass_on_from(Stream stream) {
  std::deque<int>& asked = asked_[index_of(stream)];
  Asked& first = accesses_[asked.front()];
  // Spread blocks evenly over bank groups, without a pattern that streams could share.
  const uint32_t block =
      first.first_block + static_cast<uint32_t>(first.to_pass_on * config_.request_bytes / kBlockBytes);
  const uint32_t mixed = (block * 2654435761U) >> 16;
  queue_.push_back({asked.front(), static_cast<int>(mixed % static_cast<uint32_t>(config_.bank_groups))});
  if (stream == Stream::communication) last_communication_ = now_;
  turn_ = stream == Stream::compute ? Stream::communication : Stream::compute;
  if (--first.to_pass_on == 0) asked.pop_front();
}

void ChannelController::pass_on() {
  const bool alone = asked_[index_of(Stream::communication)].empty();
  const bool asks = !asked_[index_of(Stream::compute)].empty();
  if (!alone) measure_intensity();
  while (std::ssize(queue_) < config_.queue) {
    const std::optional<Stream> stream = next_stream();
    if (!stream) break;
    pass_on_from(*stream);
  }
  if (!alone || !asks || measured_) return;
  occupancy_ += static_cast<double>(queue_.size());
  ++num_measured_;
}

// Plan the oldest request whose bank group is free; if none is free, the request whose group is free first.
void ChannelController::plan_next() {
  pass_on();
  next_ = kNever;
  if (queue_.empty()) return;
  const Time ready = std::max(now_, bus_free_);
  for (const Request& request : queue_) {
    next_ = std::min(next_, std::max(ready, group_free_[request.group]));
    if (next_ == ready) return;
  }
}

void ChannelController::note_traffic(double interval_ns) {
  interval_ = std::max<Time>(1, ps(interval_ns));
  traffic_.resize(1);
}

// Atomics read as many bytes as they write. An op-and-store is one command, a write.
void ChannelController::add_traffic(IntervalLoad& load, Stream stream, AccessKind kind, double bytes) const {
  const bool compute = stream == Stream::compute;
  double& read = compute ? load.compute_read_bytes : load.communication_read_bytes;
  double& written = compute ? load.compute_written_bytes : load.communication_written_bytes;
  const double read_share = kind == AccessKind::read ? 1 : moves_twice(kind) ? 0.5 : 0;
  read += read_share * bytes;
  written += (1 - read_share) * bytes;
}

std::vector<IntervalLoad> ChannelController::traffic() const {
  std::vector<IntervalLoad> intervals = traffic_;
  for (const Stream stream : {Stream::compute, Stream::communication}) {
    for (const AccessKind kind : {AccessKind::read, AccessKind::write, AccessKind::update}) {
      const double rest = left_over_[index_of(stream)][index_of(kind)] * request_share_;
      if (!intervals.empty()) add_traffic(intervals.back(), stream, kind, rest);
    }
  }
  return intervals;
}

ChannelController::Done ChannelController::step() {
  now_ = next_;
  const auto found =
      std::ranges::find_if(queue_, [&](const Request& request) { return group_free_[request.group] <= now_; });
  const Request request = *found;
  queue_.erase(found);
  Asked& access = accesses_[request.access];
  const Time group_time = group_time_[index_of(access.kind)];
  bus_free_ = now_ + bus_time_;
  group_free_[request.group] = now_ + group_time;
  busy_ns_ += static_cast<double>(bus_time_) / kPsPerNs;
  if (interval_ > 0) {
    traffic_.resize(std::max(traffic_.size(), static_cast<size_t>(now_ / interval_) + 1));
    add_traffic(traffic_.back(), access.stream, access.kind, request_share_);
  }
  const bool complete = --access.open == 0;
  const Time moved = now_ + std::max(bus_time_, group_time);
  const Done done{complete ? access.owner : -1, later(moved, complete ? access.latency_ns : 0)};
  if (complete) free_.push_back(request.access);
  plan_next();
  return done;
}

}  // namespace tilewire::sim
