// torch.ops.tilewire.moe and moe_dropping: a layer of experts that are spread over the ranks.
// Called by PyTorch's dispatcher; registered by operators.cpp.
#include "torch/experts.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/text.hpp"
#include "tilewire/json.hpp"
#include "tilewire/print.hpp"

namespace tilewire::python {
namespace {

struct ExpertArguments {
  TorchTensor x;
  TorchTensor topk_ids;
  TorchTensor topk_weights;
  TorchTensor w13;
  TorchTensor w2;
  std::string group;
  std::string activation;
  int64_t num_experts;
  int64_t shared_experts;
  int64_t max_rows;
  std::string load;
};

ExpertArguments take_expert_arguments(TorchStack& stack) {
  // NOTE: in this order.
  TorchTensor x = stack.tensor();
  TorchTensor ids = stack.tensor();
  TorchTensor weights = stack.tensor();
  TorchTensor w13 = stack.tensor();
  TorchTensor w2 = stack.tensor();
  std::string group = stack.text();
  std::string activation = stack.text();
  const int64_t experts = stack.integer();
  const int64_t shared = stack.integer();
  const int64_t max_rows = stack.integer();
  std::string load = stack.text();
  return {std::move(x),  std::move(ids),   std::move(weights),    std::move(w13),
          std::move(w2), std::move(group), std::move(activation), experts,
          shared,        max_rows,         std::move(load)};
}

/// The numbers of a list with commas.
std::vector<double> loads_of(const std::string& text) {
  return from_json_text<Experts>(fmt::format(R"({{"load": [{}]}})", text)).load;
}

void check_expert_arguments(const ExpertArguments& all, const Experts& experts, int64_t of_rank) {
  const int64_t k = all.x.sizes().back();
  require_sizes(all.w13, "w13", {of_rank, first_columns(experts), k});
  require_sizes(all.w2, "w2", {of_rank, all.w2.sizes()[1], experts.ffn});
  require_weights(all.x, std::array{NamedTensor{&all.w13, "w13"}, NamedTensor{&all.w2, "w2"}});
}

/// `drops`: rows beyond max_rows are left out, and a second result counts them.
void call_experts(TorchStack& stack, bool drops) {
  const ExpertArguments all = take_expert_arguments(stack);
  TorchLayer& layer = torch_layer();
  require_routed(all.x, all.topk_ids, all.topk_weights);
  require_dimensions(all.w13, "w13", 3);
  require_dimensions(all.w2, "w2", 3);
  const TorchDevice device = all.x.device();
  const auto team = layer.teams.find(all.group, device.type == layer.shim.cuda, device.index);
  const int ranks = team->num_ranks();
  require(all.shared_experts >= 0 && all.shared_experts <= all.w13.sizes()[0], "shared_experts = {}, w13 has {}",
          all.shared_experts, all.w13.sizes()[0]);
  const int64_t routed = all.w13.sizes()[0] - all.shared_experts;
  Experts experts{.count = all.num_experts > 0 ? all.num_experts : routed * ranks,
                  .top_k = all.topk_ids.sizes().back(),
                  .ffn = all.w2.sizes()[2],
                  .shared = all.shared_experts,
                  .activation = parse<Activation>(all.activation, "activation"),
                  .max_rows = all.max_rows,
                  .drops = drops,
                  .load = loads_of(all.load)};
  check_expert_arguments(all, experts, all.w13.sizes()[0]);
  std::vector<TorchMatrix> inputs;
  for (const TorchTensor* tensor : {&all.x, &all.topk_ids, &all.topk_weights}) inputs.push_back(rows_of(*tensor));
  inputs.push_back(weights_of({&all.w13, "w13"}));
  inputs.push_back(weights_of({&all.w2, "w2"}));
  Problem problem{.op = "moe",
                  .m = inputs[0].view.rows * ranks,
                  .n = all.w2.sizes()[1],
                  .k = all.x.sizes().back(),
                  .dtype = all.x.dtype(),
                  .experts = std::move(experts)};
  std::vector<int64_t> sizes(all.x.sizes().begin(), all.x.sizes().end());
  sizes.back() = problem.n;
  const TorchTensor y = all.x.new_empty(sizes);
  std::vector<Tensor> outputs{*rows_where_they_lie(y)};
  std::optional<TorchTensor> dropped;
  if (drops) {
    dropped = all.topk_ids.new_empty(std::array<int64_t, 2>{1, 1});
    outputs.push_back(*rows_where_they_lie(*dropped));
  }
  team->run(layer.shim, std::move(problem), layer.teams.settings(), views_of(inputs), outputs, stream_of(device));
  stack.give(y);
  if (dropped) stack.give(*dropped);
}

void run_experts(StableValue* values, uint64_t /*num_arguments*/, uint64_t /*num_outputs*/) {
  run_kernel(values, [](TorchStack& stack) { call_experts(stack, false); });
}

void run_dropping_experts(StableValue* values, uint64_t /*num_arguments*/, uint64_t /*num_outputs*/) {
  run_kernel(values, [](TorchStack& stack) { call_experts(stack, true); });
}

constexpr const char* kArguments =
    "(Tensor x, Tensor topk_ids, Tensor topk_weights, Tensor w13, Tensor w2, str group, str activation='swiglu', "
    "int num_experts=0, int shared_experts=0, int max_rows=0, str expert_load='')";

}  // namespace

void require_sizes(const TorchTensor& tensor, const char* name, const std::vector<int64_t>& wanted) {
  if (!std::ranges::equal(tensor.sizes(), wanted))
    fail(ErrorKind::invalid_input, "{} is {}, want [{}]", name, sizes_text(tensor), fmt::join(wanted, ", "));
}

void require_dimensions(const TorchTensor& tensor, const char* name, size_t wanted) {
  require(tensor.sizes().size() == wanted, "{} has {} dimensions, want {}", name, tensor.sizes().size(), wanted);
}

void require_routed(const TorchTensor& x, const TorchTensor& ids, const TorchTensor& weights) {
  require(x.sizes().size() >= 2, "x has {} dimensions, want 2 or more", x.sizes().size());
  require(ids.sizes().size() == x.sizes().size(), "topk_ids is {}, x {}", sizes_text(ids), sizes_text(x));
  std::vector<int64_t> routed(x.sizes().begin(), x.sizes().end());
  routed.back() = ids.sizes().back();
  require_sizes(ids, "topk_ids", routed);
  require_sizes(weights, "topk_weights", routed);
  require(ids.device() == x.device(), "x and topk_ids are on different devices");
  require(weights.device() == x.device(), "x and topk_weights are on different devices");
  require(ids.dtype() == DType::int32, "topk_ids is {}, want int32", to_string(ids.dtype()));
  require(weights.dtype() == DType::fp32, "topk_weights is {}, want fp32", to_string(weights.dtype()));
}

void require_weights(const TorchTensor& x, std::span<const NamedTensor> weights) {
  for (const auto& [tensor, name] : weights) {
    require(tensor->device() == x.device(), "x and {} are on different devices", name);
    require(tensor->torch_dtype() == x.torch_dtype(), "x and {} are of different types", name);
  }
}

TorchMatrix weights_of(const NamedTensor& weights) {
  const std::optional<Tensor> rows = rows_where_they_lie(*weights.first);
  require(rows.has_value(), "{}: its rows are not contiguous or have no common stride: want a dense tensor",
          weights.second);
  return {*weights.first, *rows};
}

std::vector<Tensor> views_of(const std::vector<TorchMatrix>& matrices) {
  std::vector<Tensor> views;
  for (const TorchMatrix& matrix : matrices) views.push_back(matrix.view);
  return views;
}

std::vector<TorchKernel> experts_kernels() {
  const std::string arguments = kArguments;
  std::vector<TorchKernel> all{
      {"moe", "moe" + arguments + " -> Tensor", &run_experts},
      {"moe_dropping", "moe_dropping" + arguments + " -> (Tensor, Tensor)", &run_dropping_experts}};
  for (TorchKernel& step : expert_steps_kernels()) all.push_back(std::move(step));
  return all;
}

}  // namespace tilewire::python
