// Schemas of the operators of torch.ops.tilewire.
// Called by torch/operators.cpp.
#include "torch/rules.hpp"

#include <fmt/format.h>

namespace tilewire::python {

std::string schema_of(const TorchRule& rule, bool out) {
  const TorchOptions& has = rule.options;
  std::string text = fmt::format("{}{}(Tensor x, ", rule.name, out ? "_out" : "");
  if (rule.product) text += rule.several ? "Tensor[] b, " : "Tensor b, ";
  text += "str group";
  if (out) text += rule.several ? ", Tensor(a!)[] y" : ", Tensor(a!) y";
  if (out && has.gather) text += ", Tensor(b!)? gathered";
  if (out && has.norm) text += ", Tensor(b!) normed";
  if (out && has.quantised) text += ", Tensor(c!) scale";
  if (has.norm) text += ", Tensor norm_weight";
  if (has.norm && !has.quantised) text += ", Tensor? norm_bias=None";
  if (has.norm) text += ", float eps=1e-06";
  if (!out && has.quantised) text += ", str norm_dtype='fp8_e4m3'";
  // NOTE: no keyword-only arguments: PyTorch has no autograd for operators with keyword-only tensors.
  if (has.bias) text += rule.several ? ", Tensor[]? bias=None" : ", Tensor? bias=None";
  if (has.residual) text += ", Tensor? residual=None";
  if (has.activation) text += ", str activation=''";
  if (has.average) text += ", bool average=False";
  if (has.gather && !out) text += ", bool gather=False";
  if (has.repeatable) text += ", bool repeatable=False";
  if (has.allow_tf32) text += ", bool allow_tf32=False";
  const char* results = rule.several    ? "(Tensor[], Tensor?)"
                        : has.gather    ? "(Tensor, Tensor?)"
                        : has.quantised ? "(Tensor, Tensor, Tensor)"
                        : has.norm      ? "(Tensor, Tensor)"
                                        : "Tensor";
  return text + ") -> " + (out ? "()" : results);
}

}  // namespace tilewire::python
