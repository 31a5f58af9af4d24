// Costs of tasks by tilewire's own engines: tiles, copies, sums. Library calls are in library_costs.cpp.
// Called by the engine.
#include "backends/sim/costs.hpp"

#include <algorithm>
#include <utility>

#include "backends/sim/load.hpp"
#include "core/bodies.hpp"
#include "core/gemm_tasks.hpp"
#include "core/text.hpp"
#include "schedules/parts.hpp"

namespace tilewire::sim {
namespace {

constexpr double kBytesPerMiB = 1 << 20;

}  // namespace

Costs::Costs(const Plan& plan, const Machine& machine)
    : plan_(plan),
      machine_(machine),
      network_(machine.links),
      num_devices_(num_devices(machine)),
      paths_(num_devices_),
      caches_(num_devices_, Cache(static_cast<int64_t>(machine.memory.cache_MiB * kBytesPerMiB))),
      block_caches_(num_devices_, BlockCache(static_cast<int64_t>(machine.memory.cache_MiB * kBytesPerMiB))),
      link_bytes_(network_.edges().size()),
      memory_(num_devices_),
      units_ns_(num_devices_) {
  // NOTE: with a memory controller each worker is one unit, so units are shared only with library calls.
  const auto calls = [](const Lane& lane) {
    return std::ranges::any_of(lane.tasks, [](const Task& task) { return task.kind == TaskKind::gemm_call; });
  };
  shares_units_ = !machine.controller || std::ranges::any_of(plan.lanes, calls);
}

std::vector<double> Costs::when_meeting() const {
  std::vector<double> left(2 * num_devices_ + network_.edges().size(), 1.0);
  for (size_t i = 0; i < network_.edges().size(); ++i) {
    if (network_.edges()[i].to < num_devices_)
      left[link_resource(static_cast<int>(i))] = machine_.links.meeting_efficiency;
  }
  return left;
}

const Costs::Path& Costs::path(int from, int to) const {
  std::vector<std::optional<Path>>& paths = paths_[from];
  if (paths.empty()) paths.resize(num_devices_);
  if (!paths[to]) {
    std::vector<int> edges = network_.route(from, to);
    const double latency_ns = network_.latency_ns(edges);
    paths[to] = Path{std::move(edges), latency_ns};
  }
  return *paths[to];
}

int64_t Costs::bytes_of_region(const Region& region) const {
  return region.rows * region.cols * bytes_of(plan_.buffers[region.buffer].dtype);
}

double Costs::tile_efficiency(const GemmParams& gemm) const {
  const auto& known = machine_.compute.tile_efficiency;
  if (gemm.tile_m != tile_m_ || gemm.tile_n != tile_n_) {
    tile_m_ = gemm.tile_m;
    tile_n_ = gemm.tile_n;
    const auto found = known.find(fmt::format("{}x{}", tile_m_, tile_n_));
    tile_efficiency_ = found != known.end() ? found->second : 1;
  }
  return tile_efficiency_;
}

double Costs::flops_per_ns(const Task& task) const {
  const ComputeUnits& compute = machine_.compute;
  const bool fp32 = plan_.buffers[task.reads[0].buffer].dtype == DType::fp32;
  const double speed = !fp32 ? 1 : task.gemm.allow_tf32 ? compute.tf32_speed : compute.fp32_speed;
  return compute.clock_GHz * compute.flops_per_clock_per_unit * compute.efficiency * speed;
}

void Costs::cross(Load& load, int edge, int64_t bytes, double efficiency, int sender) {
  const double bandwidth = network_.edges()[edge].bandwidth_GBps * efficiency;
  load.use(link_resource(edge), static_cast<double>(bytes) / bandwidth, sender);
  link_bytes_[edge] += bytes;
}

void Costs::send(Load& load, int from, int to, int64_t bytes, double efficiency, int sender) {
  const Path& path = this->path(from, to);
  load.delay_until_there(path.latency_ns);
  for (const int edge : path.edges) cross(load, edge, bytes, efficiency, sender);
}

// `rank` reads `bytes` of the region.
void Costs::read(Load& load, const Region& region, int rank, int64_t bytes, bool by_units) {
  if (bytes == 0) return;
  const Stream stream = region.rank == rank ? stream_ : Stream::communication;
  memory_[region.rank].read_bytes += bytes;
  if (stream == Stream::communication) memory_[region.rank].communication_read_bytes += bytes;
  if (machine_.controller) {
    load.access({region.rank, stream, AccessKind::read, static_cast<double>(bytes), machine_.controller->latency_ns});
  } else {
    load.use(memory_resource(region.rank), static_cast<double>(bytes) / machine_.memory.bandwidth_GBps);
  }
  if (region.rank != rank) {
    send(load, region.rank, rank, bytes, by_units ? machine_.links.store_efficiency : 1, region.rank);
    load.request(path(rank, region.rank).latency_ns);
  }
  if (by_units) load.add_unit_bytes(bytes, region.rank != rank);
}

void Costs::write(Load& load, const Write& write, int rank, bool by_units) {
  const int64_t bytes = bytes_of_region(write.to);
  if (bytes == 0) return;
  const bool adds_there = write.mode == WriteMode::accumulate;
  const bool in_one = machine_.controller && machine_.controller->near_memory == NearMemory::op_and_store;
  const int64_t read = adds_there && !in_one ? bytes : 0;
  const Stream stream = write.to.rank == rank ? stream_ : Stream::communication;
  MemoryLoad& memory = memory_[write.to.rank];
  memory.written_bytes += bytes;
  memory.read_bytes += read;
  if (stream == Stream::communication) memory.communication_written_bytes += bytes;
  if (stream == Stream::communication) memory.communication_read_bytes += read;
  if (machine_.controller) {
    const AccessKind kind = adds_there ? AccessKind::update : AccessKind::write;
    load.access_there({write.to.rank, stream, kind, static_cast<double>(bytes)});
  } else {
    load.use(memory_resource(write.to.rank), static_cast<double>(bytes + read) / machine_.memory.bandwidth_GBps);
  }
  const double adds = adds_there ? machine_.links.add_efficiency : 1;
  const double efficiency = by_units ? machine_.links.store_efficiency * adds : 1;
  if (write.to.rank != rank) send(load, rank, write.to.rank, bytes, efficiency, rank);
  if (by_units) load.add_unit_bytes(bytes, write.to.rank != rank);
}

// The phases of a copy or a sum in blocks: block i is read while block i - 1 is sent and block i - 2 is written. Only
// the first read pays the latency.
void Costs::add_steps(Cost& cost, const Load& load, double delay_ns, int64_t steps) {
  const Phase whole = load.phase(delay_ns);
  if (whole.accesses.empty() && load.landing().empty()) {
    cost.phases.push_back(whole);
    return;
  }
  const auto part = [&](std::vector<Access> accesses) {
    for (Access& access : accesses) access.bytes /= static_cast<double>(steps);
    return accesses;
  };
  const std::vector<Access> first = part(whole.accesses);
  std::vector<Access> next = first;
  for (Access& access : next) access.latency_ns = 0;
  cost.landing = part(load.landing());
  const auto add_step = [&](bool reads, bool writes, int64_t times) {
    if (times == 0) return;
    Phase step{.work_ns = whole.work_ns / static_cast<double>(steps), .demands = whole.demands, .times = times};
    if (reads) step.accesses = next;
    if (writes) step.accesses.insert(step.accesses.end(), cost.landing.begin(), cost.landing.end());
    cost.phases.push_back(std::move(step));
  };
  cost.phases.push_back({.delay_ns = delay_ns, .accesses = first});
  add_step(true, false, steps > 1 ? 1 : 0);
  add_step(true, true, std::max<int64_t>(0, steps - 2));
  add_step(false, steps > 1, 1);
}

// The phases of a mainloop: the inputs of the first step, then each step beside the reads of the next step.
void Costs::add_inner_loop(Cost& cost, const Load& load, const Task& task, int rank) {
  cost.steps = steps_of(task);
  for (const Region& region : task.reads) {
    if (region.rank != rank) continue;
    cost.inputs.push_back({block_caches_[rank].blocks_of(region, cost.steps), bytes_of_region(region)});
  }
  Phase first = load.phase(load.request_ns() + load.latency_ns());
  const double step_ns = first.work_ns / static_cast<double>(cost.steps);
  const std::vector<Demand> demands = std::exchange(first.demands, {});
  first.work_ns = 0;
  first.first_step = 0;
  cost.phases.push_back(std::move(first));
  if (cost.steps > 1)
    cost.phases.push_back({.work_ns = step_ns, .demands = demands, .times = cost.steps - 1, .first_step = 1});
  cost.phases.push_back({.work_ns = step_ns, .demands = demands});
}

Access Costs::inputs_of_step(const Cost& cost, int rank, int64_t step) {
  int64_t missing = 0;
  for (const StepInput& input : cost.inputs) {
    const int64_t bytes = input.bytes * (step + 1) / cost.steps - input.bytes * step / cost.steps;
    missing += block_caches_[rank].touch(input.first_block + static_cast<int>(step), bytes);
  }
  memory_[rank].read_bytes += missing;
  return {rank, Stream::compute, AccessKind::read, static_cast<double>(missing), machine_.controller->latency_ns};
}

// Number of K steps of a mainloop, or of blocks of a copy; a block is large enough to hide its overheads.
int64_t Costs::steps_of(const Task& task) const {
  if (!machine_.controller || (task.kind == TaskKind::compute && !facts_of(task.body).multiplies)) return 1;
  constexpr int64_t kBlockBytes = 32 << 10;
  const bool along_k = task.kind == TaskKind::compute;
  const int64_t step = machine_.controller->step_k;
  const Region& copied = task.reads.empty() ? task.writes[0].to : task.reads[0];
  const int64_t size = along_k ? depth_of(task) : bytes_of_region(copied);
  return std::max<int64_t>(1, (size + (along_k ? step : kBlockBytes) - 1) / (along_k ? step : kBlockBytes));
}

// A mainloop with its reads, and then stores beside the next tile's mainloop. NOTE: a ragged tile takes as long as a
// full tile.
Cost Costs::tile(const Task& task, const Lane& lane) {
  const Shape shape = result_shape(task);
  Load loop(machine_);
  const BodyFacts& body = facts_of(task.body);
  if (!body.multiplies) {
    Region rows = task.reads[0];
    rows.rows = body.rows_read(task);
    // A CTA that made these columns of the rows has them (Lane::joined).
    if (lane.joined) rows.cols = task.writes[0].to.cols;
    read(loop, rows, lane.rank, bytes_of_region(rows), true);
  } else {
    const int64_t rows = std::max(shape.rows, task.gemm.tile_m);
    const int64_t cols = std::max(shape.cols, task.gemm.tile_n);
    const double flops =
        shape.rows == 0 || shape.cols == 0
            ? 0.0
            : 2.0 * static_cast<double>(rows) * static_cast<double>(cols) * static_cast<double>(depth_of(task));
    const double products_ns = flops / (flops_per_ns(task) * tile_efficiency(task.gemm));
    const double all_units_ns = (products_ns + machine_.compute.tile_ns) / machine_.compute.units;
    units_ns_[lane.rank] += all_units_ns;
    loop.take_at_least(products_ns / std::min(task.gemm.cluster_split_k, machine_.compute.units) +
                       machine_.compute.tile_ns);
    if (shares_units_) loop.use(lane.rank, all_units_ns);
    for (const Region& region : task.reads) {
      if (machine_.controller && region.rank == lane.rank) continue;
      const int64_t bytes = bytes_of_region(region);
      read(loop, region, lane.rank, region.rank == lane.rank ? caches_[lane.rank].acquire(region, bytes) : bytes,
           false);
    }
  }
  Load stores(machine_);
  for (const Region& addend : task.addends) read(stores, addend, lane.rank, bytes_of_region(addend), true);
  for (const Write& each : task.writes) write(stores, each, lane.rank, true);
  Cost cost{.stores_last = true, .latency_ns = stores.latency_ns()};
  if (machine_.controller && body.multiplies) {
    add_inner_loop(cost, loop, task, lane.rank);
  } else {
    add_steps(cost, loop, loop.request_ns() + loop.latency_ns(), steps_of(task));
  }
  cost.phases.push_back(stores.phase(0));
  // The worker waits for stores to its own memory, not for stores to peers.
  for (const Access& access : stores.landing()) {
    (access.device == lane.rank ? cost.phases.back().accesses : cost.landing).push_back(access);
  }
  if (machine_.controller && machine_.controller->caches_outputs) cache_results(task, lane.rank);
  return cost;
}

// Stored results evict inputs from the cache. Sums are done in memory and bypass the cache.
void Costs::cache_results(const Task& task, int rank) {
  for (const Write& write : task.writes) {
    if (write.to.rank != rank || write.mode == WriteMode::accumulate) continue;
    BlockCache& cache = block_caches_[rank];
    cache.touch(cache.blocks_of(write.to, 1), bytes_of_region(write.to));
  }
}

void Costs::release_inputs(const Task& task, const Lane& lane) {
  if (!facts_of(task.body).multiplies || machine_.controller) return;
  for (const Region& region : task.reads) {
    if (region.rank == lane.rank) caches_[lane.rank].release(region);
  }
}

double Costs::issue_ns(const Task& task) const {
  return machine_.copy.issue_ns + (task.waits.empty() ? 0 : machine_.copy.doorbell_ns);
}

// The phases of a message that is stored and forwarded: one link after the other. Each link serves its messages in
// order of arrival.
Cost Costs::hop_by_hop(const Task& task, const Lane& lane) {
  const Write& there = task.writes.front();
  const int64_t bytes = bytes_of_region(task.reads[0]);
  const std::vector<int>& edges = path(task.reads[0].rank, there.to.rank).edges;
  Cost cost{.pulls = task.reads[0].rank != lane.rank};
  double delay_ns = issue_ns(task) + (cost.pulls ? latency_ns(lane.rank, task.reads[0].rank) : 0);
  for (size_t i = 0; i < edges.size(); ++i) {
    Load load(machine_);
    cross(load, edges[i], bytes, 1, task.reads[0].rank);
    if (i == 0) read(load, task.reads[0], task.reads[0].rank, bytes, false);
    if (i + 1 == edges.size()) write(load, there, there.to.rank, false);
    cost.phases.push_back(load.phase(delay_ns));
    cost.phases.back().link = edges[i];
    delay_ns = network_.edges()[edges[i]].latency_ns;
  }
  cost.latency_ns = delay_ns;
  return cost;
}

Cost Costs::copy(const Task& task, const Lane& lane) {
  const int from = task.reads[0].rank;
  const bool alone = task.writes.size() == 1 && task.writes.front().to.rank != from;
  if (machine_.links.forwarding == Forwarding::store_and_forward && alone && !machine_.controller)
    return hop_by_hop(task, lane);
  Load load(machine_);
  read(load, task.reads[0], lane.rank, bytes_of_region(task.reads[0]), false);
  for (const Write& each : task.writes) write(load, each, lane.rank, false);
  Cost cost{.pulls = load.request_ns() > 0, .latency_ns = load.latency_ns()};
  add_steps(cost, load, issue_ns(task) + load.request_ns(), steps_of(task));
  return cost;
}

// A sum, a fill, or a copy without a copy engine: one worker reads and writes.
Cost Costs::moved_by_units(const Task& task, const Lane& lane) {
  Load load(machine_);
  for (const Region& region : task.reads) read(load, region, lane.rank, bytes_of_region(region), true);
  for (const Write& each : task.writes) write(load, each, lane.rank, true);
  Cost cost{.pulls = load.request_ns() > 0, .latency_ns = load.latency_ns()};
  add_steps(cost, load, load.request_ns(), steps_of(task));
  return cost;
}

Cost Costs::of(const Task& task, const Lane& lane) {
  stream_ = computes(task) ? Stream::compute : Stream::communication;
  switch (task.kind) {
    case TaskKind::compute:
      return tile(task, lane);
    case TaskKind::copy:
      if (lane.engine == Engine::copy) return copy(task, lane);
      return moved_by_units(task, lane);
    case TaskKind::reduce:
    case TaskKind::fill:
      return moved_by_units(task, lane);
    case TaskKind::gemm_call:
      return library_gemm(task, lane);
    case TaskKind::collective_call:
      return library_collective(task, lane);
    case TaskKind::sync:
      return {};
  }
  return {};
}

}  // namespace tilewire::sim
