// Converts Python's arrays to tensors without a copy: any object with DLPack or the buffer protocol.
// Called by module.cpp.
#include <fmt/format.h>
#include <nanobind/ndarray.h>

#include <array>
#include <utility>

#include "bindings.hpp"
#include "core/text.hpp"
#include "tilewire/print.hpp"

namespace tilewire::python {
namespace {

/// Name of an array's element type: tilewire's name, or a description of an unknown type.
std::string type_name(nb::dlpack::dtype type) {
  const auto is = [&](nb::dlpack::dtype_code code, int bits) {
    return type.code == static_cast<uint8_t>(code) && type.bits == bits && type.lanes == 1;
  };
  if (is(nb::dlpack::dtype_code::Float, 32)) return "fp32";
  if (is(nb::dlpack::dtype_code::Float, 16)) return "fp16";
  if (is(nb::dlpack::dtype_code::Bfloat, 16)) return "bf16";
  if (is(nb::dlpack::dtype_code::Int, 32)) return "int32";
  if (is(nb::dlpack::dtype_code::Int, 8)) return "int8";
  constexpr int kFloat8E4m3fn = 10;  // of DLPack 1.1; nanobind has no name for it
  if (type.code == kFloat8E4m3fn && type.bits == 8 && type.lanes == 1) return "fp8_e4m3";
  return fmt::format("a type of code {} and {} bits", type.code, type.bits);
}

/// `dtype`: type of the elements if the array's own type cannot express it (bf16 in numpy); empty = the array's type.
View view_of(const nb::ndarray<nb::ro>& array, nb::object owner, const std::string& dtype, bool writable) {
  require(array.ndim() == 2, "a tensor of {} dimensions: want 2", array.ndim());
  const std::string name = dtype.empty() ? type_name(array.dtype()) : dtype;
  const auto type = parse<DType>(name, "dtype");
  require(bytes_of(type) * 8 == array.dtype().bits, "elements of {} bits are not {}", array.dtype().bits, name);
  const auto rows = static_cast<int64_t>(array.shape(0));
  const auto cols = static_cast<int64_t>(array.shape(1));
  require(cols <= 1 || array.stride(1) == 1, "stride of columns is {}, want 1: rows must be contiguous",
          array.stride(1));
  require(rows <= 1 || array.stride(0) >= cols, "stride of rows is {}, want {} or more", array.stride(0), cols);
  const int device = array.device_type();
  const bool on_gpu = device == nb::device::cuda::value;
  require(on_gpu || device == nb::device::cpu::value, "a tensor on a device of type {}: want the host or CUDA", device);
  Tensor tensor = make_tensor(const_cast<void*>(array.data()), type, rows, cols);
  if (rows > 1) tensor.row_stride = array.stride(0);
  return {tensor, std::move(owner), writable, on_gpu, static_cast<int>(array.device_id())};
}

nb::ndarray<nb::array_api> array_of(nb::handle self, bool bits) {
  const auto& view = nb::cast<const View&>(self);
  const Tensor& tensor = view.tensor;
  const std::array<size_t, 2> shape{static_cast<size_t>(tensor.rows), static_cast<size_t>(tensor.cols)};
  const std::array<int64_t, 2> strides{tensor.row_stride, 1};
  nb::dlpack::dtype_code code = nb::dlpack::dtype_code::Float;
  if (tensor.dtype == DType::int32 || tensor.dtype == DType::int8) code = nb::dlpack::dtype_code::Int;
  if (tensor.dtype == DType::bf16) code = nb::dlpack::dtype_code::Bfloat;
  if (bits && bytes_of(tensor.dtype) < 4) code = nb::dlpack::dtype_code::UInt;
  if (tensor.dtype == DType::fp8_e4m3) code = nb::dlpack::dtype_code::UInt;  // DLPack of nanobind has no fp8
  const nb::dlpack::dtype type{static_cast<uint8_t>(code), static_cast<uint8_t>(8 * bytes_of(tensor.dtype)), 1};
  const int device = view.on_gpu ? nb::device::cuda::value : nb::device::cpu::value;
  return {tensor.data, 2, shape.data(), self, strides.data(), type, device, view.device};
}

}  // namespace

void bind_tensors(nb::module_& module) {
  nb::class_<View>(module, "Tensor", "A matrix in memory, row by row, and whoever owns it.")
      .def(
          "__init__",
          [](View* self, const nb::ndarray<nb::ro>& array, nb::object owner, const std::string& dtype, bool writable) {
            new (self) View(view_of(array, std::move(owner), dtype, writable));
          },
          nb::arg("array"), nb::arg("owner"), nb::arg("dtype"), nb::arg("writable"),
          nb::sig("def __init__(self, array: object, owner: object, dtype: str, writable: bool) -> None"))
      .def_static(
          "at",
          [](uintptr_t data, const std::string& dtype, int64_t rows, int64_t cols, int64_t row_stride, int device,
             nb::object owner) {
            const Tensor tensor{reinterpret_cast<void*>(data), parse<DType>(dtype, "dtype"), rows, cols,
                                rows > 1 ? row_stride : cols};
            return View{tensor, std::move(owner), true, device >= 0, device};
          },
          nb::arg("data"), nb::arg("dtype"), nb::arg("rows"), nb::arg("cols"), nb::arg("row_stride"), nb::arg("device"),
          nb::arg("owner"), "What lies at an address; `device`: number of a GPU, or -1.")
      .def_prop_ro("shape", [](const View& view) { return std::pair(view.tensor.rows, view.tensor.cols); })
      .def_prop_ro("dtype", [](const View& view) { return to_string(view.tensor.dtype); })
      .def_prop_ro("on_gpu", [](const View& view) { return view.on_gpu; })
      .def_prop_ro(
          "data", [](const View& view) { return reinterpret_cast<uintptr_t>(view.tensor.data); },
          "Address of the first element.")
      .def("array", &array_of, nb::arg("bits") = false, nb::sig("def array(self, bits: bool = False) -> object"),
           "The same memory as an object with __dlpack__. `bits`: elements of one or two bytes as unsigned integers.");
}

}  // namespace tilewire::python
