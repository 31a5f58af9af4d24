// Random inputs as a function of the seed, the buffer and the position in the global tensor.
// Called by the bench, by verification and by tests.
#include "operators/random_data.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/convert.hpp"
#include "core/race_ranges.hpp"
#include "core/text.hpp"
#include "operators/experts.hpp"
#include "operators/route_tokens.hpp"
#include "tilewire/spi/operator.hpp"

namespace tilewire {
namespace {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;

// The finalizer of splitmix64: every output bit depends on every input bit.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// The problem's buffers and meanings, for random reads.
struct Inputs {
  std::vector<Buffer> buffers;
  std::vector<Meaning> meanings;  // [buffer * num_ranks + rank]
  std::vector<bool> known;        // same index as meanings
  std::optional<Experts> experts;
  std::vector<std::vector<int64_t>> placement;
  std::vector<Routing> routings;  // by rank, if the handle of a routing is an input
  int num_ranks = 1;
  uint64_t seed = 0;
};

/// The experts of a token by their load: those for which -log(random) / load is least.
void loaded_experts(uint64_t stream, const Experts& experts, int64_t token, float* to) {
  const uint64_t start = mix(stream + kGolden * static_cast<uint64_t>(token + 1));
  std::vector<std::pair<double, int64_t>> keys;
  for (int64_t expert = 0; expert < experts.count; ++expert) {
    const uint64_t bits = mix(start + kGolden * static_cast<uint64_t>(expert)) >> 12;
    const double key = -std::log((static_cast<double>(bits) + 0.5) * 0x1p-52);
    const double load = experts.load[expert];
    keys.emplace_back(load > 0 ? key / load : std::numeric_limits<double>::infinity(), expert);
  }
  std::ranges::partial_sort(keys, keys.begin() + experts.top_k);
  for (int64_t i = 0; i < experts.top_k; ++i) to[i] = static_cast<float>(keys[i].second);
}

/// The experts of a token: the first is random, each further one is the next free one from a random place.
void random_experts(uint64_t stream, const Experts& experts, int64_t token, float* to) {
  if (!experts.load.empty()) return loaded_experts(stream, experts, token, to);
  std::vector<int64_t> taken;
  for (int64_t i = 0; i < experts.top_k; ++i) {
    const uint64_t bits = mix(mix(stream + kGolden * static_cast<uint64_t>(token + 1)) + static_cast<uint64_t>(i));
    auto expert = static_cast<int64_t>(bits % static_cast<uint64_t>(experts.count));
    while (std::ranges::find(taken, expert) != taken.end()) expert = (expert + 1) % experts.count;
    taken.push_back(expert);
    to[i] = static_cast<float>(expert);
  }
}

/// Replicas of an expert have the same weights: the row as if all experts were in their order.
int64_t row_of_expert(const Inputs& inputs, int buffer, int rank, int64_t row) {
  const auto& mine = inputs.placement[rank];
  const int64_t lines = shape_on(inputs.buffers[buffer], rank).rows / std::ssize(mine);
  return mine[row / lines] * lines + row % lines;
}

/// Route random tokens, as if a dispatch had made the handle that is an input.
std::vector<Routing> random_routings(const Problem& problem, int num_ranks, uint64_t seed) {
  const int64_t most = most_rows_of_groups(problem, num_ranks);
  if (most > int64_t{1} << 24)
    fail(ErrorKind::unsupported, "random data for groups of {} rows: want at most 2^24", most);
  const Experts& experts = *problem.experts;
  std::vector<Routing> routings;
  for (const RouteParams& route : routes_of(problem, num_ranks)) {
    routings.push_back(
        route_tokens(route, problem.m, experts.top_k, most, [&](int64_t token, float* chosen, float* weights) {
          random_experts(mix(seed + kGolden), experts, token, chosen);
          random_row(mix(seed + 2 * kGolden), token, 0, experts.top_k, DType::fp32, weights);
        }));
  }
  return routings;
}

/// A row of the handle of a routing, or a row in groups.
void read_of_groups(const Inputs& inputs, const Meaning& meaning, int64_t row, float* to) {
  const Routing& routing = inputs.routings[meaning.rank];
  const Buffer& described = inputs.buffers[meaning.buffer];
  const int64_t cols = shape_on(described, meaning.rank).cols;
  const auto copy = [&](const auto& all) {
    std::transform(all.begin() + row * cols, all.begin() + (row + 1) * cols, to,
                   [](auto value) { return static_cast<float>(value); });
  };
  if (meaning.role == Role::extents) return copy(routing.extents);
  if (meaning.role == Role::places) return copy(routing.places);
  if (meaning.role == Role::place_weights) return copy(routing.weights);
  // Nobody may use a row outside of the groups.
  if (routing.groups[row] < 0) return static_cast<void>(std::fill_n(to, cols, std::numeric_limits<float>::quiet_NaN()));
  random_row(random_stream(inputs.seed, meaning), meaning.rank * described.most_rows + row, 0, cols, described.dtype,
             to);
}

void read_random(const Inputs& inputs, int buffer, int rank, int64_t row, float* to) {
  const auto place = static_cast<size_t>(buffer) * inputs.num_ranks + rank;
  ensure(inputs.known[place], "no meaning for buffer {} on rank {}", buffer, rank);
  const Meaning& meaning = inputs.meanings[place];
  const Buffer& described = inputs.buffers[buffer];
  if (meaning.role == Role::indices) {
    fail(ErrorKind::unsupported, "random data for {}: it holds row indices, not numbers", described.name);
  }
  const uint64_t stream = random_stream(inputs.seed, meaning);
  const int64_t cols = shape_on(described, rank).cols;
  if (is_of_groups(meaning.role)) return read_of_groups(inputs, meaning, row, to);
  if (meaning.role == Role::topk_ids) return random_experts(stream, *inputs.experts, meaning.row + row, to);
  if (meaning.role == Role::w13 || meaning.role == Role::w2)
    return random_row(stream, row_of_expert(inputs, buffer, rank, row), 0, cols, described.dtype, to);
  random_row(stream, meaning.row + row, meaning.col, cols, described.dtype, to);
}

}  // namespace

TILEWIRE_ANNOUNCED
void random_row(uint64_t stream, int64_t row, int64_t col, int64_t n, DType dtype, float* to) {
  announce_write(to, sizeof(float) * static_cast<size_t>(n));
  const uint64_t start = mix(stream + kGolden * static_cast<uint64_t>(row + 1));
  for (int64_t i = 0; i < n; ++i) {
    // NOTE: 24 bits fit into fp32 exactly, so no rounding changes the value.
    const auto bits = static_cast<int32_t>(mix(start + kGolden * static_cast<uint64_t>(col + i)) >> 40);
    to[i] = static_cast<float>(bits - (1 << 23)) * 0x1p-23F;
  }
  if (dtype == DType::fp32) return;
  std::array<uint32_t, 256> rounded{};
  for (int64_t i = 0; i < n; i += rounded.size()) {
    const int64_t count = std::min<int64_t>(n - i, rounded.size());
    store_row(to + i, count, rounded.data(), dtype);
    load_row(rounded.data(), dtype, count, to + i);
  }
}

uint64_t random_stream(uint64_t seed, const Meaning& meaning) {
  const uint64_t term = meaning.role == Role::partial ? static_cast<uint64_t>(meaning.terms.begin) + 1 : 0;
  return mix(mix(mix(seed + kGolden) + static_cast<uint64_t>(meaning.buffer)) + term * kGolden);
}

ReadRow random_inputs(const Problem& problem, int num_ranks, uint64_t seed) {
  const Operator& op = find_operator(problem.op);
  auto inputs = std::make_shared<Inputs>();
  inputs->buffers = op.buffers(problem, num_ranks);
  inputs->meanings.resize(inputs->buffers.size() * num_ranks);
  inputs->known.resize(inputs->meanings.size());
  for (const Meaning& meaning : op.meanings(problem, num_ranks)) {
    const auto place = static_cast<size_t>(meaning.buffer) * num_ranks + meaning.rank;
    inputs->meanings[place] = meaning;
    inputs->known[place] = true;
  }
  inputs->experts = problem.experts;
  if (problem.experts) inputs->placement = placement_of(*problem.experts, num_ranks);
  if (problem.experts && !op.structure.steps.dispatch) inputs->routings = random_routings(problem, num_ranks, seed);
  inputs->num_ranks = num_ranks;
  inputs->seed = seed;
  return [inputs](int buffer, int rank, int64_t row, float* to) { read_random(*inputs, buffer, rank, row, to); };
}

void fill_rows(const ReadRow& read, int buffer, int rank, const Tensor& tensor) {
  std::vector<float> line(std::max<int64_t>(tensor.cols, 1));
  auto* to = static_cast<std::byte*>(tensor.data);
  for (int64_t row = 0; row < tensor.rows; ++row) {
    read(buffer, rank, row, line.data());
    store_row(line.data(), tensor.cols, to + row * tensor.row_stride * bytes_of(tensor.dtype), tensor.dtype);
  }
}

}  // namespace tilewire
