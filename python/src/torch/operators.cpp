// torch.ops.tilewire: kernels for CPUs and GPUs. Fakes and gradients are in Python (tilewire/torch/_fakes.py,
// _gradients.py).
// Called by PyTorch's dispatcher; registered by _core.register_torch.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/text.hpp"
#include "tilewire/print.hpp"
#include "torch/layer.hpp"
#include "torch/rules.hpp"

namespace tilewire::python {
namespace {

/// NOTE: a global, because PyTorch's kernels are plain functions and exist until the process ends.
TorchLayer* layer = nullptr;

/// This thread's last Error in a kernel. PyTorch converts it to a RuntimeError with the same text.
thread_local std::optional<Error> last_error;

/// Version 2.10 of PyTorch's ABI: it defines how arguments and results are passed.
constexpr uint64_t kAbiVersion = (uint64_t{2} << 56) | (uint64_t{10} << 48);

}  // namespace

TorchLayer& torch_layer() {
  ensure(layer != nullptr, "a kernel of torch.ops.tilewire without its layer");
  return *layer;
}

std::string sizes_text(const TorchTensor& x) { return fmt::format("[{}]", fmt::join(x.sizes(), ", ")); }

void* stream_of(TorchDevice device) {
  if (device.type != layer->shim.cuda) return nullptr;
  if (layer->shim.get_current_cuda_stream == nullptr) {
    fail(ErrorKind::unsupported, "a tensor on a GPU, and a PyTorch without CUDA");
  }
  void* stream = nullptr;
  check_torch(layer->shim.get_current_cuda_stream(device.index, &stream), "get_current_cuda_stream");
  return stream;
}

void run_kernel(StableValue* values, const std::function<void(TorchStack&)>& body) {
  TorchStack stack(torch_layer().shim, values);
  try {
    body(stack);
  } catch (const Error& error) {
    last_error = error;
    throw;
  }
}

namespace {

/// All arguments of a call. Arguments that the operator lacks keep their default.
struct Arguments {
  TorchTensor x;
  std::vector<TorchTensor> b{};
  std::string group{};
  std::vector<TorchTensor> y{};
  std::optional<TorchTensor> gathered{};
  std::optional<TorchTensor> normed{};
  std::optional<TorchTensor> scale{};
  std::optional<TorchTensor> norm_weight{};
  std::optional<TorchTensor> norm_bias{};
  double eps = 0;
  std::optional<DType> norm_dtype{};  ///< of quantised rows
  std::vector<TorchTensor> bias{};    ///< empty, or one per b
  std::optional<TorchTensor> residual{};
  std::string activation{};
  bool average = false;
  bool gather = false;
  bool repeatable = false;
  bool allow_tf32 = false;
};

/// Take the arguments in the order of the schema.
Arguments take_arguments(TorchStack& stack, const TorchRule& rule, bool out) {
  const TorchOptions& has = rule.options;
  const auto one_or_all = [&] { return rule.several ? stack.tensors() : std::vector{stack.tensor()}; };
  Arguments all{stack.tensor()};
  if (rule.product) all.b = one_or_all();
  all.group = stack.text();
  if (out) all.y = one_or_all();
  if (out && has.gather) all.gathered = stack.maybe_tensor();
  if (out && has.norm) all.normed = stack.tensor();
  if (out && has.quantised) all.scale = stack.tensor();
  if (has.norm) {
    all.norm_weight = stack.tensor();
    if (!has.quantised) all.norm_bias = stack.maybe_tensor();
    all.eps = stack.number();
  }
  if (out && has.quantised) all.norm_dtype = all.normed->dtype();
  if (!out && has.quantised) all.norm_dtype = parse<DType>(stack.text(), "norm_dtype");
  if (has.bias && rule.several) all.bias = stack.maybe_tensors();
  if (has.bias && !rule.several) {
    if (std::optional<TorchTensor> bias = stack.maybe_tensor()) all.bias.push_back(std::move(*bias));
  }
  if (has.residual) all.residual = stack.maybe_tensor();
  if (has.activation) all.activation = stack.text();
  if (has.average) all.average = stack.flag();
  if (has.gather) all.gather = out ? all.gathered.has_value() : stack.flag();
  if (has.repeatable) all.repeatable = stack.flag();
  if (has.allow_tf32) all.allow_tf32 = stack.flag();
  return all;
}

void check_like(const TorchTensor& x, const TorchTensor& other, const char* name) {
  require(other.device() == x.device(), "x and {} are on different devices", name);
  require(other.torch_dtype() == x.torch_dtype(), "x and {} are of different types", name);
}

void check_row(const TorchTensor& x, const std::optional<TorchTensor>& row, const char* name) {
  if (!row) return;
  require(row->sizes().size() == 1, "{} has {} dimensions, want 1", name, row->sizes().size());
  check_like(x, *row, name);
}

void check_arguments(const Arguments& all, const TorchRule& rule) {
  const size_t least = rule.product ? 2 : 1;
  require(all.x.sizes().size() >= least, "x has {} dimensions, want {} or more", all.x.sizes().size(), least);
  require(!rule.product || !all.b.empty(), "no b: want one or more");
  for (const TorchTensor& b : all.b) {
    require(b.sizes().size() == 2, "b has {} dimensions, want 2", b.sizes().size());
    check_like(all.x, b, "b");
  }
  require(all.bias.empty() || all.bias.size() == all.b.size(), "{} biases of {} products: want one for each, or none",
          all.bias.size(), all.b.size());
  for (const TorchTensor& bias : all.bias) check_row(all.x, bias, "bias");
  if (all.residual) {
    check_like(all.x, *all.residual, "residual");
    require(!all.residual->sizes().empty(), "residual has no dimension, want y's");
  }
  check_row(all.x, all.norm_weight, "norm_weight");
  check_row(all.x, all.norm_bias, "norm_bias");
  if (all.normed && !all.norm_dtype) check_like(all.x, *all.normed, "normed");
  if (all.norm_dtype && all.normed)
    require(all.normed->device() == all.x.device(), "x and normed are on different devices");
  if (all.scale) {
    require(all.scale->device() == all.x.device(), "x and scale are on different devices");
    require(all.scale->dtype() == DType::fp32, "scale is {}, want fp32", to_string(all.scale->dtype()));
  }
  for (const TorchTensor& y : all.y) check_like(all.x, y, "y");
  if (all.gathered) check_like(all.x, *all.gathered, "gathered");
  require(!all.average || (all.bias.empty() && !all.residual && all.activation.empty()),
          "an average with bias, residual or activation: want the sum");
}

/// The epilogue, applied once after the sum over ranks.
std::vector<Epilogue> epilogue_of(const Arguments& all, int num_ranks) {
  std::vector<Epilogue> steps;
  if (!all.bias.empty()) steps.push_back({EpilogueKind::bias});
  if (!all.activation.empty()) {
    const auto kind = parse<EpilogueKind>(all.activation, "activation");
    require(kind == EpilogueKind::gelu || kind == EpilogueKind::relu || kind == EpilogueKind::swiglu_pairs,
            "activation '{}': want 'gelu', 'relu' or 'swiglu_pairs'", all.activation);
    steps.push_back({kind});
  }
  if (all.average) steps.push_back({EpilogueKind::scale, 1.0 / num_ranks});
  if (all.residual) steps.push_back({EpilogueKind::residual});
  return steps;
}

std::optional<Norm> norm_of(const Arguments& all) {
  if (!all.norm_weight) return std::nullopt;
  return Norm{all.norm_bias ? NormKind::layer : NormKind::rms, all.eps, all.norm_dtype};
}

/// B viewed as a [cols, depth] matrix; nothing unless its columns are contiguous.
std::optional<TorchMatrix> columns_where_they_lie(const TorchTensor& b) {
  const std::span<const int64_t> sizes = b.sizes();
  const std::span<const int64_t> strides = b.strides();
  const int64_t row_stride = sizes[1] > 1 ? strides[1] : sizes[0];
  if (strides[0] != 1 || sizes[0] <= 1 || row_stride < sizes[0]) return std::nullopt;
  return TorchMatrix{b, Tensor{b.data(), b.dtype(), sizes[1], sizes[0], row_stride}};
}

/// Add all B to the inputs in one layout: nk without copies if all columns are contiguous, else kn.
BLayout add_weights(const std::vector<TorchTensor>& all, std::vector<TorchMatrix>& inputs) {
  const auto first = static_cast<std::ptrdiff_t>(inputs.size());
  for (const TorchTensor& b : all) {
    std::optional<TorchMatrix> columns = columns_where_they_lie(b);
    if (!columns) {
      inputs.erase(inputs.begin() + first, inputs.end());
      for (const TorchTensor& each : all) inputs.push_back(rows_of(each));
      return BLayout::kn;
    }
    inputs.push_back(std::move(*columns));
  }
  return BLayout::nk;
}

/// Sizes of y: those of x, except for the first and the last dimension.
std::vector<int64_t> sizes_of_result(const TorchRule& rule, const TorchTensor& x, int64_t cols, int num_ranks) {
  std::vector<int64_t> sizes(x.sizes().begin(), x.sizes().end());
  if (sizes.size() > 1 && rule.m_by_ranks && rule.keeps_rows) sizes.front() *= num_ranks;
  if (!rule.keeps_rows) {
    require(sizes.front() % num_ranks == 0, "{} rows over {} ranks: want a multiple", sizes.front(), num_ranks);
    // NOTE: rows that are exchanged come from all ranks.
    if (!rule.m_by_ranks) sizes.front() /= num_ranks;
  }
  if (rule.product) sizes.back() = cols;
  return sizes;
}

/// Check a result tensor that the caller gave, and return its view.
Tensor result_of(const TorchTensor& given, const std::vector<int64_t>& sizes, const char* name) {
  if (!std::ranges::equal(given.sizes(), sizes))
    fail(ErrorKind::invalid_input, "{} is {}, want [{}]", name, sizes_text(given), fmt::join(sizes, ", "));
  const std::optional<Tensor> rows = rows_where_they_lie(given);
  require(rows.has_value(), "{}: its rows are not contiguous or have no common stride: want a dense tensor", name);
  return *rows;
}

bool is_same(const TorchTensor& x, const TorchTensor& y) {
  return y.data() == x.data() && std::ranges::equal(y.sizes(), x.sizes()) &&
         std::ranges::equal(y.strides(), x.strides());
}

/// The inputs in the operator's order. One that is also a result is copied, because an operator writes while peers
/// read; but a residual may be y.
std::vector<TorchMatrix> inputs_of(const TorchRule& rule, const Arguments& all, BLayout& layout) {
  const bool normed_is_x = all.normed && is_same(all.x, *all.normed);
  const bool y_is_x = std::ranges::any_of(all.y, [&](const TorchTensor& y) { return is_same(all.x, y); });
  std::vector<TorchMatrix> inputs{rows_of(normed_is_x || y_is_x ? all.x.copy() : all.x)};
  if (rule.product) layout = add_weights(all.b, inputs);
  for (const TorchTensor& bias : all.bias) inputs.push_back(rows_of(bias));
  if (all.residual) {
    const bool normed_is_residual = all.normed && is_same(*all.residual, *all.normed);
    inputs.push_back(rows_of(normed_is_residual ? all.residual->copy() : *all.residual));
  }
  for (const std::optional<TorchTensor>& row : {all.norm_weight, all.norm_bias}) {
    if (row) inputs.push_back(rows_of(*row));
  }
  return inputs;
}

/// Check the depth of the products. NOTE: texts are made only on failure: a call should take microseconds.
void require_depth(const TorchRule& rule, const Arguments& all, int ranks) {
  const int64_t depth = all.x.sizes().back() * (rule.gathers_cols ? ranks : 1);
  for (const TorchTensor& b : all.b) {
    if (depth != b.sizes()[0])
      fail(ErrorKind::invalid_input, "a product of {} and {}", sizes_text(all.x), sizes_text(b));
  }
}

/// Columns of each product, or of x for an operator without one.
std::vector<int64_t> columns_of(const TorchRule& rule, const Arguments& all) {
  if (!rule.product) return {all.x.sizes().back()};
  const bool pairs = all.activation == to_string(EpilogueKind::swiglu_pairs);
  std::vector<int64_t> cols;
  for (const TorchTensor& b : all.b) {
    const int64_t of_b = b.sizes()[1];
    require(!pairs || of_b % 2 == 0, "activation 'swiglu_pairs' of {} columns, want an even number", of_b);
    cols.push_back(pairs ? of_b / 2 : of_b);
  }
  return cols;
}

/// The problem, with sizes over all ranks. `x` has this rank's rows.
Problem problem_of(const TorchRule& rule, const Arguments& all, const Tensor& x, int ranks) {
  Problem problem{.op = rule.op,
                  .m = rule.m_by_ranks ? x.rows * ranks : x.rows,
                  .k = !rule.product     ? 0
                       : rule.k_by_ranks ? x.cols * ranks
                                         : x.cols,
                  .dtype = x.dtype,
                  .epilogue = epilogue_of(all, ranks),
                  .norm = norm_of(all),
                  .reduction = all.repeatable ? Reduction::repeatable : Reduction::any,
                  .gathered_output = all.gather,
                  .allow_tf32 = all.allow_tf32};
  std::vector<int64_t> cols = columns_of(rule, all);
  if (rule.n_by_ranks) std::ranges::transform(cols, cols.begin(), [&](int64_t n) { return n * ranks; });
  problem.n = cols.front();
  problem.more_n.assign(cols.begin() + 1, cols.end());
  return problem;
}

/// The results: PyTorch's tensors (given or new), and their views as the operator's outputs.
struct Results {
  std::vector<TorchTensor> y{};
  std::optional<TorchTensor> gathered{};
  std::optional<TorchTensor> normed{};
  std::optional<TorchTensor> scale{};
  std::vector<Tensor> outputs{};
};

Results results_of(const TorchRule& rule, const Arguments& all, bool out, int ranks) {
  std::vector<int64_t> cols = columns_of(rule, all);
  if (!rule.keeps_cols && !rule.n_by_ranks) {
    require(cols[0] % ranks == 0, "{} columns over {} ranks: want a multiple", cols[0], ranks);
    cols[0] /= ranks;
  }
  require(!out || all.y.size() == cols.size(), "{} y of {} products", all.y.size(), cols.size());
  Results results;
  for (size_t i = 0; i < cols.size(); ++i) {
    const std::vector<int64_t> sizes = sizes_of_result(rule, all.x, cols[i], ranks);
    results.y.push_back(out ? all.y[i] : all.x.new_empty(sizes));
    results.outputs.push_back(result_of(results.y.back(), sizes, "y"));
  }
  if (all.norm_weight) {
    const TorchShim& shim = layer->shim;
    std::vector<int64_t> sizes = sizes_of_result(rule, all.x, cols[0], ranks);
    const int32_t dtype = !all.norm_dtype                      ? all.x.torch_dtype()
                          : *all.norm_dtype == DType::fp8_e4m3 ? shim.fp8_e4m3
                                                               : shim.int8;
    results.normed = out ? all.normed : all.x.new_empty(sizes, dtype);
    results.outputs.push_back(result_of(*results.normed, sizes, "normed"));
    if (all.norm_dtype) {
      sizes.back() = 1;
      results.scale = out ? all.scale : all.x.new_empty(sizes, shim.fp32);
      results.outputs.push_back(result_of(*results.scale, sizes, "scale"));
    }
  }
  if (!all.gather) return results;
  std::vector<int64_t> sizes(all.x.sizes().begin(), all.x.sizes().end());
  (rule.gathers_cols ? sizes.back() : sizes.front()) *= ranks;
  results.gathered = out ? all.gathered : all.x.new_empty(sizes);
  results.outputs.push_back(result_of(*results.gathered, sizes, "gathered"));
  return results;
}

void call(const TorchRule& rule, bool out, TorchStack& stack) {
  const Arguments all = take_arguments(stack, rule, out);
  check_arguments(all, rule);
  const TorchDevice device = all.x.device();
  const std::shared_ptr<TorchTeam> team = layer->teams.find(all.group, device.type == layer->shim.cuda, device.index);
  const int ranks = team->num_ranks();
  require_depth(rule, all, ranks);
  BLayout layout = BLayout::nk;
  const std::vector<TorchMatrix> inputs = inputs_of(rule, all, layout);
  Problem problem = problem_of(rule, all, inputs.front().view, ranks);
  problem.b_layout = layout;
  if (rule.product && layer->teams.settings().constant_weights) problem.constant = {"b"};
  const Results results = results_of(rule, all, out, ranks);
  std::vector<Tensor> views;
  for (const TorchMatrix& input : inputs) views.push_back(input.view);
  team->run(layer->shim, std::move(problem), layer->teams.settings(), views, results.outputs, stream_of(device));
  if (out) return;
  rule.several ? stack.give(results.y) : stack.give(results.y.front());
  if (rule.options.gather) stack.give_or_none(results.gathered);
  if (results.normed) stack.give(*results.normed);
  if (results.scale) stack.give(*results.scale);
}

/// The function that PyTorch calls.
template <size_t kRule, bool kOut>
void kernel(StableValue* values, uint64_t /*num_arguments*/, uint64_t /*num_outputs*/) {
  run_kernel(values, [](TorchStack& stack) { call(kTorchRules[kRule], kOut, stack); });
}

template <size_t... kRules>
void set_kernels(const char* key, std::index_sequence<kRules...> /*rules*/) {
  TorchLibrary* library = nullptr;
  check_torch(layer->shim.new_kernels("tilewire", key, __FILE__, __LINE__, &library), "library_init_impl");
  const auto set = [&](const std::string& name, StableKernel function) {
    check_torch(layer->shim.set_kernel(library, name.c_str(), function, kAbiVersion), "library_impl");
  };
  (set(kTorchRules[kRules].name, &kernel<kRules, false>), ...);
  (set(std::string(kTorchRules[kRules].name) + "_out", &kernel<kRules, true>), ...);
  for (const TorchKernel& kernel : experts_kernels()) set(kernel.name, kernel.function);
}

void register_torch(nb::object resolve, nb::object meet) {
  if (layer != nullptr) return;
  layer = new TorchLayer{load_torch_shim(), {std::move(resolve), std::move(meet)}};
  // NOTE: never destroyed: PyTorch's library objects own the operators.
  TorchLibrary* library = nullptr;
  check_torch(layer->shim.new_definitions("tilewire", __FILE__, __LINE__, &library), "library_init_def");
  for (const TorchRule& rule : kTorchRules) {
    for (const bool out : {false, true}) {
      check_torch(layer->shim.define(library, schema_of(rule, out).c_str()), "library_def");
    }
  }
  for (const TorchKernel& kernel : experts_kernels())
    check_torch(layer->shim.define(library, kernel.schema.c_str()), "library_def");
  for (const char* key : {"CPU", "CUDA"}) set_kernels(key, std::make_index_sequence<kTorchRules.size()>{});
}

}  // namespace

void bind_torch(nb::module_& module) {
  module.def("register_torch", &register_torch, nb::arg("resolve"), nb::arg("meet"),
             "Define torch.ops.tilewire. `resolve`: the process group of a name; `meet`: the group of its ranks, from "
             "the process group, whether on GPUs, and the device's number.");
  module.def("forget_torch_teams", [] {
    if (layer != nullptr) layer->teams.clear();
  });
  module.def(
      "check_torch_teams",
      [] {
        if (layer != nullptr) layer->teams.check();
      },
      "Raise what is known by now to have failed.");
  module.def(
      "set_torch",
      [](const std::optional<std::string>& tuning, std::optional<int> most_ops, std::optional<bool> constant_weights) {
        TorchSettings& settings = layer->teams.settings();
        if (tuning) settings.tuning = parse<Tuning>(*tuning, "tuning");
        if (constant_weights) settings.constant_weights = *constant_weights;
        if (!most_ops) return;
        require(*most_ops > 0, "a cache of {} operators: want 1 or more", *most_ops);
        settings.most_ops = static_cast<size_t>(*most_ops);
      },
      nb::arg("tuning") = nb::none(), nb::arg("most_ops") = nb::none(), nb::arg("constant_weights") = nb::none(),
      "How new operators choose; whether weights are constant; and how many operators a team keeps beside those that "
      "graphs may replay.");
  module.def(
      "kept_by_torch",
      [](const std::string& group, bool on_gpu, int index) { return layer->teams.kept(group, on_gpu, index); },
      nb::arg("group"), nb::arg("on_gpu"), nb::arg("index"), "Problems whose operators are kept, the last used first.");
  module.def(
      "raise_torch_error",
      [](const std::string& text) {
        const std::optional<Error> error = std::exchange(last_error, std::nullopt);
        if (error && text.find(error->what()) != std::string::npos) throw Error(*error);
      },
      nb::arg("text"), "Raise the error of this thread's last kernel that failed, where the text is of it.");
}

}  // namespace tilewire::python
