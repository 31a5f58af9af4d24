// torch.ops.tilewire.moe_dispatch, moe_combine, moe_dispatch_gemm and moe_gemm_combine: the steps of a layer of
// experts. Called by PyTorch's dispatcher; registered by operators.cpp.
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/text.hpp"
#include "operators/experts.hpp"
#include "tilewire/print.hpp"
#include "torch/experts.hpp"

namespace tilewire::python {
namespace {

/// Tensors of a step: tokens, experts and weights, or rows, extents, places and their weights; then w13 or w2.
struct StepArguments {
  std::vector<TorchTensor> tensors;
  std::optional<TorchTensor> matrices;
  std::string group;
  std::string activation = "swiglu";
  int64_t num_experts = 0;
  int64_t shared_experts = 0;
  int64_t max_rows = 0;
};

StepArguments take_arguments(TorchStack& stack, const ExpertSteps& steps) {
  StepArguments all;
  const size_t tensors = steps.dispatch ? 3 : 4;
  while (all.tensors.size() < tensors) all.tensors.push_back(stack.tensor());
  if (steps.first || steps.second) all.matrices = stack.tensor();
  all.group = stack.text();
  if (steps.first) all.activation = stack.text();
  all.num_experts = stack.integer();
  all.shared_experts = stack.integer();
  all.max_rows = stack.integer();
  return all;
}

std::shared_ptr<TorchTeam> team_of(const StepArguments& all) {
  TorchLayer& layer = torch_layer();
  const TorchDevice device = all.tensors[0].device();
  return layer.teams.find(all.group, device.type == layer.shim.cuda, device.index);
}

/// The numbers of experts; `top_k` and `ffn` as given.
Experts experts_of(const StepArguments& all, int64_t top_k, int64_t ffn, int ranks) {
  int64_t count = all.num_experts;
  if (all.matrices) {
    const int64_t of_rank = all.matrices->sizes()[0];
    require(all.shared_experts >= 0 && all.shared_experts <= of_rank, "shared_experts = {}, the weights have {}",
            all.shared_experts, of_rank);
    if (count == 0) count = (of_rank - all.shared_experts) * ranks;
  }
  return {.count = count,
          .top_k = top_k,
          .ffn = ffn,
          .shared = all.shared_experts,
          .activation = parse<Activation>(all.activation, "activation"),
          .max_rows = all.max_rows};
}

void require_matrices(const StepArguments& all, const char* name, const std::vector<int64_t>& sizes) {
  require_sizes(*all.matrices, name, sizes);
  require_weights(all.tensors[0], std::array{NamedTensor{&*all.matrices, name}});
}

void run_team(const StepArguments& all, TorchTeam& team, Problem problem, const std::vector<TorchMatrix>& inputs,
              const std::vector<TorchTensor>& results) {
  TorchLayer& layer = torch_layer();
  std::vector<Tensor> outputs;
  for (const TorchTensor& result : results) outputs.push_back(*rows_where_they_lie(result));
  team.run(layer.shim, std::move(problem), layer.teams.settings(), views_of(inputs), outputs,
           stream_of(all.tensors[0].device()));
}

void call_dispatch(TorchStack& stack, const ExpertSteps& steps) {
  const StepArguments all = take_arguments(stack, steps);
  const TorchTensor& x = all.tensors[0];
  const TorchTensor& ids = all.tensors[1];
  const TorchTensor& weights = all.tensors[2];
  require_routed(x, ids, weights);
  if (steps.first) require_dimensions(*all.matrices, "w13", 3);
  const std::shared_ptr<TorchTeam> team = team_of(all);
  const int ranks = team->num_ranks();
  const bool gated = is_gated(parse<Activation>(all.activation, "activation"));
  const int64_t ffn = steps.first ? all.matrices->sizes()[1] / (gated ? 2 : 1) : 0;
  const Experts experts = experts_of(all, ids.sizes().back(), ffn, ranks);
  std::vector<TorchMatrix> inputs;
  for (const TorchTensor& tensor : all.tensors) inputs.push_back(rows_of(tensor));
  if (steps.first) {
    require_matrices(all, "w13", {all.matrices->sizes()[0], first_columns(experts), x.sizes().back()});
    inputs.push_back(weights_of({&*all.matrices, "w13"}));
  }
  Problem problem{.op = steps.first ? "moe_dispatch_gemm" : "moe_dispatch",
                  .m = inputs[0].view.rows * ranks,
                  .k = x.sizes().back(),
                  .dtype = x.dtype(),
                  .experts = experts};
  validate(problem, ranks);
  const int64_t groups = std::ssize(placement_of(experts, ranks)[team->rank()]);
  const std::array<int64_t, 2> rows{most_rows_of_groups(problem, ranks), steps.first ? ffn : problem.k};
  const std::array<int64_t, 2> lists{problem.m, experts.top_k + experts.shared};
  const std::vector<TorchTensor> results{x.new_empty(rows), ids.new_empty(std::array<int64_t, 2>{2, groups}),
                                         ids.new_empty(lists), weights.new_empty(lists)};
  run_team(all, *team, std::move(problem), inputs, results);
  for (const TorchTensor& result : results) stack.give(result);
}

void call_combine(TorchStack& stack, const ExpertSteps& steps) {
  const StepArguments all = take_arguments(stack, steps);
  const TorchTensor& rows = all.tensors[0];
  constexpr std::array kNames{"rows", "extents", "places", "place_weights"};
  std::vector<TorchMatrix> inputs;
  for (size_t i = 0; i < kNames.size(); ++i) {
    require_dimensions(all.tensors[i], kNames[i], 2);
    require(all.tensors[i].device() == rows.device(), "rows and {} are on different devices", kNames[i]);
    inputs.push_back(rows_of(all.tensors[i]));
  }
  if (steps.second) require_dimensions(*all.matrices, "w2", 3);
  const std::shared_ptr<TorchTeam> team = team_of(all);
  const int ranks = team->num_ranks();
  const int64_t width = all.tensors[2].sizes()[1];
  const Experts experts = experts_of(all, width - all.shared_experts, steps.second ? rows.sizes()[1] : 0, ranks);
  if (steps.second) {
    const auto sizes = all.matrices->sizes();
    require_matrices(all, "w2", {sizes[0], sizes[1], rows.sizes()[1]});
    inputs.push_back(weights_of({&*all.matrices, "w2"}));
  }
  Problem problem{.op = steps.second ? "moe_gemm_combine" : "moe_combine",
                  .m = all.tensors[2].sizes()[0],
                  .n = steps.second ? all.matrices->sizes()[1] : rows.sizes()[1],
                  .dtype = rows.dtype(),
                  .experts = experts};
  require(problem.m % ranks == 0, "places of {} tokens on {} ranks, want equally many tokens of each", problem.m,
          ranks);
  const TorchTensor y = rows.new_empty(std::array<int64_t, 2>{problem.m / ranks, problem.n});
  run_team(all, *team, std::move(problem), inputs, {y});
  stack.give(y);
}

constexpr ExpertSteps kDispatch{.first = false, .second = false, .combine = false};
constexpr ExpertSteps kDispatchGemm{.second = false, .combine = false};
constexpr ExpertSteps kCombine{.dispatch = false, .first = false, .second = false};
constexpr ExpertSteps kGemmCombine{.dispatch = false, .first = false};

void run_dispatch(StableValue* values, uint64_t /*num_arguments*/, uint64_t /*num_outputs*/) {
  run_kernel(values, [](TorchStack& stack) { call_dispatch(stack, kDispatch); });
}
void run_dispatch_gemm(StableValue* values, uint64_t /*num_arguments*/, uint64_t /*num_outputs*/) {
  run_kernel(values, [](TorchStack& stack) { call_dispatch(stack, kDispatchGemm); });
}
void run_combine(StableValue* values, uint64_t /*num_arguments*/, uint64_t /*num_outputs*/) {
  run_kernel(values, [](TorchStack& stack) { call_combine(stack, kCombine); });
}
void run_gemm_combine(StableValue* values, uint64_t /*num_arguments*/, uint64_t /*num_outputs*/) {
  run_kernel(values, [](TorchStack& stack) { call_combine(stack, kGemmCombine); });
}

}  // namespace

std::vector<TorchKernel> expert_steps_kernels() {
  const std::string tokens = "Tensor x, Tensor topk_ids, Tensor topk_weights, ";
  const std::string handle = "Tensor rows, Tensor extents, Tensor places, Tensor place_weights, ";
  const std::string others = ", int shared_experts=0, int max_rows=0)";
  const std::string four = " -> (Tensor, Tensor, Tensor, Tensor)";
  return {{"moe_dispatch", "moe_dispatch(" + tokens + "str group, int num_experts" + others + four, &run_dispatch},
          {"moe_dispatch_gemm",
           "moe_dispatch_gemm(" + tokens + "Tensor w13, str group, str activation='swiglu', int num_experts=0" +
               others + four,
           &run_dispatch_gemm},
          {"moe_combine", "moe_combine(" + handle + "str group, int num_experts" + others + " -> Tensor", &run_combine},
          {"moe_gemm_combine",
           "moe_gemm_combine(" + handle + "Tensor w2, str group, int num_experts=0" + others + " -> Tensor",
           &run_gemm_combine}};
}

}  // namespace tilewire::python
