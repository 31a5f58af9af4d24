// Operators for C: problems as JSON, tensors as raw pointers.
// Called through tilewire/c.h.
#include <algorithm>

#include "c/errors.hpp"
#include "c/handles.hpp"
#include "tilewire/json.hpp"

using namespace tilewire;
using c::guarded;
using c::require_live;
using c::require_pointer;

namespace tilewire::c {

DType dtype_of(tilewire_dtype dtype, const std::string& where) {
  switch (dtype) {
    case TILEWIRE_FP32:
      return DType::fp32;
    case TILEWIRE_BF16:
      return DType::bf16;
    case TILEWIRE_FP16:
      return DType::fp16;
    case TILEWIRE_INT32:
      return DType::int32;
    case TILEWIRE_FP8_E4M3:
      return DType::fp8_e4m3;
    case TILEWIRE_INT8:
      return DType::int8;
    default:
      fail(ErrorKind::invalid_input,
           "{}: unknown element type {}: want 0 (fp32), 1 (bf16), 2 (fp16), 3 (int32), 4 (fp8_e4m3) "
           "or 5 (int8)",
           where, dtype);
  }
}

}  // namespace tilewire::c

namespace {

std::vector<Tensor> tensors_of(const tilewire_tensor* tensors, int32_t count, const char* function,
                               const std::string& what) {
  require(count >= 0, "{}: the number of {}s is {}", function, what, count);
  if (count > 0) require_pointer(tensors, function, (what + "s").c_str());
  std::vector<Tensor> all;
  for (int32_t i = 0; i < count; ++i) {
    const tilewire_tensor& tensor = tensors[i];
    const DType dtype = c::dtype_of(tensor.dtype, fmt::format("{}: {} {}", function, what, i));
    all.push_back({tensor.data, dtype, tensor.rows, tensor.cols, tensor.row_stride});
  }
  return all;
}

struct Views {
  const tilewire_tensor* inputs;
  int32_t num_inputs;
  const tilewire_tensor* outputs;
  int32_t num_outputs;
};

/// Make one call of an operator, and store its error in the operator.
template <class Call>
tilewire_status run(tilewire_op* op, const char* function, const Views& views, const Call& call) {
  bool live = false;
  const tilewire_status status = guarded([&] {
    require_live(op, function);
    live = true;
    op->refused = {};
    call(tensors_of(views.inputs, views.num_inputs, function, "input"),
         tensors_of(views.outputs, views.num_outputs, function, "output"));
  });
  if (live && status != TILEWIRE_OK) guarded([&] { op->refused = c::last_error(); });
  return status;
}

}  // namespace

extern "C" {

tilewire_status tilewire_make_op(tilewire_group* group, const char* problem, const char* config, tilewire_op** op) {
  return guarded([&] {
    require_pointer(op, "tilewire_make_op", "op");
    *op = nullptr;
    require_live(group, "tilewire_make_op");
    require_pointer(problem, "tilewire_make_op", "problem");
    Op made = make_op_from_text(group->group, problem, config == nullptr ? "auto" : config);
    const std::string chosen = to_string(made.config());
    group->ops.push_back(std::unique_ptr<tilewire_op>(new tilewire_op{group, std::move(made), chosen}));
    *op = group->ops.back().get();
  });
}

tilewire_status tilewire_free_op(tilewire_op* op) {
  return guarded([&] {
    if (op == nullptr) return;
    require_live(op, "tilewire_free_op");
    std::erase_if(op->group->ops, [op](const auto& owned) { return owned.get() == op; });
  });
}

tilewire_status tilewire_run(tilewire_op* op, const tilewire_tensor* inputs, int32_t num_inputs,
                             const tilewire_tensor* outputs, int32_t num_outputs, void* stream) {
  return run(op, "tilewire_run", {inputs, num_inputs, outputs, num_outputs},
             [&](const auto& in, const auto& out) { op->op.run(in, out, stream); });
}

tilewire_status tilewire_run_and_wait(tilewire_op* op, const tilewire_tensor* inputs, int32_t num_inputs,
                                      const tilewire_tensor* outputs, int32_t num_outputs) {
  return run(op, "tilewire_run_and_wait", {inputs, num_inputs, outputs, num_outputs},
             [&](const auto& in, const auto& out) { op->op.run_and_wait(in, out); });
}

tilewire_status tilewire_wait(tilewire_op* op) {
  return guarded([&] {
    require_live(op, "tilewire_wait");
    op->op.wait();
  });
}

tilewire_status tilewire_workspace(const tilewire_op* op, int64_t* symmetric, int64_t* local) {
  return guarded([&] {
    if (symmetric != nullptr) *symmetric = 0;
    if (local != nullptr) *local = 0;
    require_live(op, "tilewire_workspace");
    const Op::Workspace held = op->op.workspace();
    if (symmetric != nullptr) *symmetric = held.symmetric;
    if (local != nullptr) *local = held.local;
  });
}

tilewire_status tilewire_last_status(const tilewire_op* op, tilewire_status* status, const char** text) {
  return guarded([&] {
    require_pointer(status, "tilewire_last_status", "status");
    *status = TILEWIRE_OK;
    if (text != nullptr) *text = "";
    require_live(op, "tilewire_last_status");
    const std::optional<Error>& inside = op->op.last_status();
    const bool refused = op->refused.status != TILEWIRE_OK;
    if (!refused && !inside) return;
    *status = refused ? op->refused.status : c::status_of(inside->kind());
    if (text != nullptr) *text = refused ? op->refused.text.c_str() : inside->what();
  });
}

const char* tilewire_explain(const tilewire_op* op) {
  const char* text = nullptr;
  guarded([&] {
    require_live(op, "tilewire_explain");
    text = op->op.explain().c_str();
  });
  return text;
}

const char* tilewire_config(const tilewire_op* op) {
  const char* text = nullptr;
  guarded([&] {
    require_live(op, "tilewire_config");
    text = op->config.c_str();
  });
  return text;
}
}
