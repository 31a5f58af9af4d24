// The module tilewire._core: translates errors for Python, and binds the classes and functions of the other files.
// Imported by python/tilewire/__init__.py.
#include "bindings.hpp"
#include "core/json_text.hpp"
#include "tilewire/print.hpp"

namespace tilewire::python {
namespace {

/// Raise tilewire.Error with its kind and the report of a failed wait.
void raise_error(const Error& error) {
  const nb::object type = nb::module_::import_("tilewire._error").attr("Error");
  nb::object report = nb::none();
  if (const auto& wait = error.wait()) {
    report = nb::module_::import_("tilewire._error")
                 .attr("WaitReport")(wait->op.c_str(), wait->rank, wait->lane.c_str(), wait->task, wait->signal.c_str(),
                                     wait->wanted, wait->seen);
  }
  // NOTE: a text may contain names in any bytes; Python accepts only UTF-8.
  const nb::object raised = type(valid_utf8(error.what()).c_str(), to_string(error.kind()).c_str(), report);
  PyErr_SetObject(type.ptr(), raised.ptr());
}

}  // namespace
}  // namespace tilewire::python

NB_MODULE(_core, module) {
  using namespace tilewire;
  nanobind::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      python::raise_error(error);
    }
  });
  module.attr("version") = TILEWIRE_VERSION_TEXT;
  python::bind_plans(module);
  python::bind_tensors(module);
  python::bind_groups(module);
  python::bind_torch(module);
}
