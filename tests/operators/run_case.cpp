// Runs one problem under many configs on CPU ranks, and compares with the reference and between configs.
// Called by the tests in this folder.
#include "operators/run_case.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "core/convert.hpp"
#include "core/in_place.hpp"
#include "core/race_ranges.hpp"
#include "core/text.hpp"
#include "operators/random_data.hpp"
#include "ranks/shared_memory.hpp"
#include "tilewire/make_plan.hpp"
#include "tilewire/spi/lower.hpp"
#include "tilewire/spi/operator.hpp"

namespace tilewire::testing {
namespace {

void fill_random(const Tensor& tensor, std::mt19937_64& random) {
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(static_cast<size_t>(tensor.rows * tensor.cols));
  for (float& value : values) value = uniform(random);
  store_row(values.data(), std::ssize(values), tensor.data, tensor.dtype);
}

std::vector<float> values_of(const Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.rows * tensor.cols));
  load_row(tensor.data, tensor.dtype, std::ssize(values), values.data());
  return values;
}

/// Mean square of an output element for uniform random inputs. In a few elements terms cancel, but not their rounding
/// errors.
double typical_square(const Problem& problem, int num_ranks, const Buffer& output) {
  if (is_quantised(output.dtype) || output.name == "norm_scale") return 0;
  if (output.name == "normed") return 1.0 / 3.0;  // the rows have a mean square of 1, the weights of 1 / 3
  // Sums by weight of a few rows, or a moved row.
  if (problem.experts && structure_of(problem).steps != ExpertSteps{}) return 1.0 / 9.0;
  return structure_of(problem).multiplies ? static_cast<double>(problem.k) / 9.0 : num_ranks / 3.0;
}

/// |x - ref| / |ref| over one output, or infinity where only one of them is a number. |ref| is taken to be
/// at least what is typical.
TILEWIRE_ANNOUNCED
double relative_error(const Tensor& got, const Tensor& want, double typical) {
  double difference = 0;
  double norm = 0;
  const std::vector<float> all_got = values_of(got);
  const std::vector<float> all_wanted = values_of(want);
  const size_t count = all_got.size();
  const float* const xs = all_got.data();
  const float* const ys = all_wanted.data();
  for (size_t i = 0; i < count; ++i) {
    const auto x = static_cast<double>(xs[i]);
    const auto y = static_cast<double>(ys[i]);
    if (std::isnan(x) != std::isnan(y)) return INFINITY;
    if (std::isnan(x)) continue;
    norm += y * y;
    if (x != y) difference += (x - y) * (x - y);
  }
  norm = std::max(norm, typical * static_cast<double>(count));
  return difference == 0 ? 0 : std::sqrt(difference / norm);
}

/// Whether an output is only moved, or counts: it has the reference's bits.
bool is_exact(const Buffer& output) {
  return output.dtype == DType::int32 || output.name == "place_weights" || output.name == "expert_x";
}

size_t num_inputs(const Problem& problem, int num_ranks) {
  const auto buffers = find_operator(problem.op).buffers(problem, num_ranks);
  return static_cast<size_t>(std::ranges::count(buffers, Scope::input, &Buffer::scope));
}

/// Whether results are added in place, in a random order.
bool adds_in_place(const Config& config) {
  return config.reduce_mode == ReduceMode::accumulate || config.schedule == "track_trigger";
}

/// Number of roundings: sums in place, on rings and by libraries are rounded once for each rank (and each part of K, if
/// the parts are added separately); other sums once.
double num_roundings(const Config& config, int num_ranks) {
  if (config.schedule == "track_trigger") return static_cast<double>(num_ranks) * config.split_k;
  const bool sums =
      adds_in_place(config) || config.algorithm == Algorithm::ring || config.collective == Provider::library;
  return sums ? num_ranks : 1;
}

/// A key of the config: configs with the same key give the same bits.
std::string bits_key(const Problem& problem, const Config& config, size_t call) {
  const bool fixed =
      problem.reduction == Reduction::repeatable || (!adds_in_place(config) && config.algorithm != Algorithm::ring);
  // NOTE: scales, in fp32, show in which order a kernel adds the squares of a row.
  if (problem.norm && quantises(*problem.norm)) return {};
  if (!fixed || config.compute == Provider::library || config.collective == Provider::library) return {};
  // Products of one rank's tokens have fewer rows, and the library's rounding may depend on their number.
  const bool by_shard = config.dispatch == Dispatch::per_expert;
  return fmt::format("{} x {} / {} x {} wire {}{} call {}", config.tile_m, config.tile_n, config.split_k,
                     config.cluster_split_k, to_string(config.wire.value_or(out_dtype_of(problem))),
                     by_shard ? " by shard" : "", call);
}

/// The bytes of all outputs of all ranks.
std::string output_bytes(const std::vector<RankTensors>& ranks, size_t inputs) {
  std::string bytes;
  for (const RankTensors& rank : ranks) {
    for (size_t i = inputs; i < rank.memory.size(); ++i) {
      bytes.append(reinterpret_cast<const char*>(rank.memory[i].data()), rank.memory[i].size());
    }
  }
  return bytes;
}

/// For each buffer a tensor that peers address, or none: in the arena, or in adopted memory.
std::vector<Tensor> tensors_in_arena(Group& group, const Problem& problem, const SharedMemory* adopted) {
  const Team& team = group.team();
  if (adopted != nullptr) group.adopt(adopted->of_all(), SharedMemory::kBytes);
  int64_t used = 0;
  std::vector<Tensor> tensors;
  for (const Buffer& buffer : find_operator(problem.op).buffers(problem, team.num_ranks)) {
    const bool shared = std::ranges::find(problem.arena, buffer.name) != problem.arena.end();
    Tensor tensor;
    const int64_t rows = is_grouped(buffer) ? buffer.most_rows : buffer.rows;
    if (shared && adopted == nullptr) tensor = group.allocate(buffer.dtype, rows, buffer.cols);
    if (shared && adopted != nullptr) {
      tensor = make_tensor(adopted->of(team.rank) + used, buffer.dtype, rows, buffer.cols);
      used += aligned_bytes(rows * buffer.cols * bytes_of(buffer.dtype));
      if (used > SharedMemory::kBytes) fail(ErrorKind::internal, "{} bytes of adopted memory", used);
    }
    tensors.push_back(tensor);
  }
  return tensors;
}

/// One call on one rank: on the callers' tensors, or on copies in the arena if the problem wants it, or on the device.
void run_rank(Group& group, Op& op, const std::vector<Tensor>& in_arena, RankTensors& mine, size_t inputs,
              bool in_place) {
  std::vector<Tensor> used = mine.tensors;
  std::vector<std::shared_ptr<std::byte>> memory;
  const auto& buffers = op.plan().buffers;
  for (size_t i = 0; i < used.size(); ++i) {
    const auto bytes = static_cast<int64_t>(mine.memory[i].size());
    if (buffers[i].in_arena) {
      used[i] = make_tensor(in_arena[i].data, in_arena[i].dtype, used[i].rows, used[i].cols);
    } else if (!group.host_addresses_memory()) {
      memory.push_back(group.new_memory(bytes));
      used[i].data = memory.back().get();
    }
    if (used[i].data != mine.tensors[i].data) group.copy(used[i].data, mine.memory[i].data(), bytes);
  }
  if (in_place) {
    // NOTE: callers' buffers are first in a plan.
    const std::vector<InPlace> pairs = in_place_pairs(op.plan());
    if (!pairs.empty()) used[pairs[0].output].data = used[pairs[0].residual].data;
  }
  op.run_and_wait(std::span(used).first(inputs), std::span(used).subspan(inputs));
  for (size_t i = inputs; i < used.size(); ++i) {
    if (used[i].data == mine.tensors[i].data) continue;
    group.copy(mine.memory[i].data(), used[i].data, static_cast<int64_t>(mine.memory[i].size()));
  }
}

/// The plan of a config, as made, or lowered for GPUs.
Plan plan_of(const Problem& problem, const Team& team, const Config& config, const CaseOptions& options, bool lowered) {
  Plan plan = make_plan(problem, team, config);
  if (options.change) options.change(plan);
  return lowered ? lower(std::move(plan), gpu_target("h200", team.num_ranks, 132)).plan : plan;
}

/// Rows in groups as `got` has them, and all other rows, which are undefined, as the reference leaves them.
std::vector<std::byte> with_defined_rows(std::vector<std::byte> got, const std::vector<std::byte>& want, int64_t rows) {
  const auto bytes = static_cast<std::ptrdiff_t>(rows > 0 ? std::ssize(want) / rows : 0);
  for (int64_t row = 0; row < rows; ++row) {
    const auto from = want.begin() + row * bytes;
    const auto is_left = [](std::byte byte) { return byte == std::byte{0xFF}; };
    if (std::all_of(from, from + bytes, is_left)) std::copy_n(from, bytes, got.begin() + row * bytes);
  }
  return got;
}

/// Compare all ranks' outputs of one call with the reference.
void expect_near(const Problem& problem, const Config& config, const std::vector<RankTensors>& got,
                 const std::vector<RankTensors>& want, size_t inputs) {
  const int num_ranks = static_cast<int>(want.size());
  const std::vector<Buffer> buffers = find_operator(problem.op).buffers(problem, num_ranks);
  for (int rank = 0; rank < num_ranks; ++rank) {
    for (size_t output = inputs; output < want[rank].tensors.size(); ++output) {
      Tensor tensor = got[rank].tensors[output];
      std::vector<std::byte> memory = got[rank].memory[output];
      if (is_grouped(buffers[output])) {
        memory = with_defined_rows(std::move(memory), want[rank].memory[output], tensor.rows);
        tensor.data = memory.data();
      }
      if (is_exact(buffers[output])) {
        ASSERT_TRUE(memory == want[rank].memory[output]) << "rank " << rank << " output " << output;
        continue;
      }
      // NOTE: a scale is as exact as the largest element of the rounded sum.
      const bool scale = buffers[output].name == "norm_scale";
      const DType dtype = scale ? out_dtype_of(problem) : problem.experts ? problem.dtype : tensor.dtype;
      const double allowed = std::max(tolerance_of(dtype), problem.allow_tf32 ? 0x1p-10 : 0.0);
      ASSERT_LE(relative_error(tensor, want[rank].tensors[output], typical_square(problem, num_ranks, buffers[output])),
                allowed * num_roundings(config, num_ranks))
          << "rank " << rank << " output " << output;
    }
  }
}

}  // namespace

double tolerance_of(DType dtype) {
  // NOTE: the reference does not round the sum before the norm: a fifth of a row's elements may be one step apart.
  if (is_quantised(dtype)) return 4.5e-2;
  return dtype == DType::fp32 ? 1e-5 : dtype == DType::fp16 ? 1e-3 : 8e-3;
}

std::vector<RankTensors> make_tensors(const Problem& problem, int num_ranks, uint64_t seed) {
  std::vector<RankTensors> ranks(num_ranks);
  std::mt19937_64 random(seed);
  const auto buffers = find_operator(problem.op).buffers(problem, num_ranks);
  for (int rank = 0; rank < num_ranks; ++rank) {
    for (const Buffer& buffer : buffers) {
      const Shape shape = memory_shape_on(buffer, rank);
      auto& memory = ranks[rank].memory.emplace_back(
          static_cast<size_t>(shape.rows * shape.cols * bytes_of(buffer.dtype)), std::byte{0xFF});
      ranks[rank].tensors.push_back(make_tensor(memory.data(), buffer.dtype, shape.rows, shape.cols));
      if (buffer.scope == Scope::input) fill_random(ranks[rank].tensors.back(), random);
    }
  }
  if (problem.experts) {
    // Experts of tokens are different integers, and replicas have equal weights.
    const ReadRow read = random_inputs(problem, num_ranks, seed);
    for (int rank = 0; rank < num_ranks; ++rank) {
      for (int buffer = 0; buffer < std::ssize(buffers); ++buffer) {
        if (buffers[buffer].scope == Scope::input) fill_rows(read, buffer, rank, ranks[rank].tensors[buffer]);
      }
    }
    return ranks;
  }
  // NOTE: elements of an epilogue's operand that two ranks share have the same values.
  const std::vector<Meaning> meanings = find_operator(problem.op).meanings(problem, num_ranks);
  for (const Meaning& mine : meanings) {
    const bool shared = mine.role == Role::bias || mine.role == Role::residual || mine.role == Role::norm_weight ||
                        mine.role == Role::norm_bias;
    if (!shared) continue;
    const auto& from = *std::ranges::find_if(meanings, [&](const Meaning& other) {
      return other.buffer == mine.buffer && other.row == mine.row && other.col == mine.col;
    });
    const std::vector<std::byte> given = ranks[from.rank].memory[from.buffer];
    if (given.size() == ranks[mine.rank].memory[mine.buffer].size())
      std::ranges::copy(given, ranks[mine.rank].memory[mine.buffer].begin());
  }
  return ranks;
}

void expect_right(const Problem& problem, int num_ranks, const std::vector<Config>& asked, const CaseOptions& options) {
  std::vector<Config> configs = asked;
  if (options.lowered) configs.insert(configs.end(), asked.begin(), asked.end());
  SCOPED_TRACE(fmt::format("{} on {} ranks, seed {}", to_string(problem), num_ranks, options.seed));
  const size_t inputs = num_inputs(problem, num_ranks);
  std::vector<std::vector<RankTensors>> want(options.num_calls);
  std::vector<std::vector<std::vector<RankTensors>>> got(configs.size());
  for (auto& calls : got) calls.resize(options.num_calls);
  std::vector<std::jthread> threads;
  for (int call = 0; call < options.num_calls; ++call) {
    threads.emplace_back([&, call] {
      const auto make = [&] {
        auto made = make_tensors(problem, num_ranks, options.seed + call);
        if (options.change_inputs) options.change_inputs(made);
        return made;
      };
      want[call] = make();
      for (auto& calls : got) calls[call] = make();
      std::vector<std::vector<Tensor>> tensors;
      for (const RankTensors& rank : want[call]) tensors.push_back(rank.tensors);
      find_operator(problem.op).reference(problem, tensors);
    });
  }
  threads.clear();  // joins: ranks may be forked
  const std::unique_ptr<SharedMemory> adopted = options.adopted ? std::make_unique<SharedMemory>(num_ranks) : nullptr;
  std::vector<char> skipped(configs.size(), 0);
  launch(num_ranks, {.backend = options.backend, .threads = options.threads, .timeout_s = options.timeout_s},
         [&](Group& group) {
           const std::vector<Tensor> in_arena = tensors_in_arena(group, problem, adopted.get());
           for (size_t i = 0; i < configs.size(); ++i) {
             const bool lowered = i >= asked.size();
             const Plan plan = plan_of(problem, group.team(), configs[i], options, lowered);
             if (const auto missing = group.unsupported(plan); !missing.empty()) {
               EXPECT_FALSE(options.all_run) << missing.front();
               if (group.team().rank == 0) skipped[i] = 1;
               continue;
             }
             const bool as_plan = lowered || options.change;
             Op op = as_plan ? make_op(group, plan, options.op) : make_op(group, problem, configs[i], options.op);
             for (int call = 0; call < options.num_calls; ++call) {
               run_rank(group, op, in_arena, got[i][call][group.team().rank], inputs, options.in_place);
               if (options.meet) group.barrier();
             }
           }
         });
  ASSERT_LT(std::ranges::count(skipped, 1), std::ssize(configs)) << "the backend can do none of these configs";
  std::map<std::string, std::string> bits;
  for (size_t i = 0; i < configs.size(); ++i) {
    if (skipped[i] != 0) continue;
    SCOPED_TRACE(to_string(configs[i]) + (i >= asked.size() ? ", lowered" : ""));
    for (int call = 0; call < options.num_calls; ++call) {
      SCOPED_TRACE(fmt::format("call {}", call));
      ASSERT_NO_FATAL_FAILURE(expect_near(problem, configs[i], got[i][call], want[call], inputs));
      const std::string key = bits_key(problem, configs[i], call);
      if (key.empty()) continue;
      const std::string bytes = output_bytes(got[i][call], inputs);
      ASSERT_EQ(bits.emplace(key, bytes).first->second == bytes, true) << "bits differ: " << key;
    }
  }
}

}  // namespace tilewire::testing
