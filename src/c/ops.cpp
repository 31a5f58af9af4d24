// Operators for C: JSON in, raw pointers to run on.
// Called through tilewire/c.h.
#include <algorithm>
#include <string_view>

#include "c/errors.hpp"
#include "c/handles.hpp"
#include "tilewire/json.hpp"
#include "tilewire/schedule.hpp"

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
    default:
      fail(ErrorKind::invalid_input, "{}: no element type is {}: want 0 (fp32), 1 (bf16), 2 (fp16) or 3 (int32)", where,
           dtype);
  }
}

}  // namespace tilewire::c

namespace {

/// What a schedule runs with. Where the problem breaks a rule its defaults: make_op says so when the ranks have met.
Config config_of(const Schedule& schedule, const Problem& problem, const Team& team) {
  try {
    return default_config(schedule.name, problem, team);
  } catch (const Error&) {
    return {.schedule = schedule.name};
  }
}

/// "auto", the name of a schedule, or JSON.
std::optional<Config> config_of(const char* text, const Problem& problem, const Team& team) {
  if (text == nullptr || std::string_view(text) == "auto") return std::nullopt;
  const std::string config = text;
  const size_t first = config.find_first_not_of(" \t\r\n");
  require(first != std::string::npos, "config is empty: want \"auto\", the name of a schedule, or JSON");
  if (config[first] == '{') return from_json_text<Config>(config);
  return config_of(find_schedule(config), problem, team);
}

std::vector<Tensor> tensors_of(const tilewire_tensor* tensors, int32_t count, const std::string& what) {
  require(count >= 0, "tilewire_run: the number of {}s is {}", what, count);
  if (count > 0) require_pointer(tensors, "tilewire_run", (what + "s").c_str());
  std::vector<Tensor> all;
  for (int32_t i = 0; i < count; ++i) {
    const tilewire_tensor& tensor = tensors[i];
    const DType dtype = c::dtype_of(tensor.dtype, fmt::format("tilewire_run: {} {}", what, i));
    all.push_back({tensor.data, dtype, tensor.rows, tensor.cols, tensor.row_stride});
  }
  return all;
}

}  // namespace

extern "C" {

tilewire_status tilewire_make_op(tilewire_group* group, const char* problem, const char* config, tilewire_op** op) {
  return guarded([&] {
    require_pointer(op, "tilewire_make_op", "op");
    *op = nullptr;
    require_live(group, "tilewire_make_op");
    require_pointer(problem, "tilewire_make_op", "problem");
    const Problem asked = from_json_text<Problem>(problem);
    Op made = make_op(group->group, asked, config_of(config, asked, group->group.team()));
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
  bool live = false;
  const tilewire_status status = guarded([&] {
    require_live(op, "tilewire_run");
    live = true;
    op->refused = {};
    op->op.run(tensors_of(inputs, num_inputs, "input"), tensors_of(outputs, num_outputs, "output"), stream);
  });
  if (live && status != TILEWIRE_OK) guarded([&] { op->refused = c::last_error(); });
  return status;
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
