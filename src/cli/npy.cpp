// The .npy format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
// Called by `tilewire run`.
#include "cli/npy.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "cli/npy_header.hpp"
#include "core/descriptor.hpp"
#include "core/text.hpp"
#include "tilewire/print.hpp"

namespace tilewire::cli {
namespace {

constexpr char kMagic[] = "\x93NUMPY";
constexpr size_t kMagicBytes = 6;
constexpr int64_t kMaxHeader = 1 << 20;

// An open file that is closed by its destructor.
class File {
 public:
  File(const std::string& path, int flags) : path_(path) {
    NewDescriptor opened = new_descriptor([&] { return ::open(path.c_str(), flags | O_CLOEXEC | O_NOCTTY, 0666); });
    require(opened.call.ok(), "{}: {}", path, opened.call.why());
    file_ = std::move(opened.descriptor);
  }

  [[nodiscard]] int64_t size() const {
    struct stat status {};
    const SystemCall looked = system_call([&] { return ::fstat(file_.get(), &status); });
    require(looked.ok(), "{}: {}", path_, looked.why());
    require(S_ISREG(status.st_mode), "{}: not a regular file", path_);
    return status.st_size;
  }
  void read(void* to, int64_t bytes, int64_t offset) const {
    auto* at = static_cast<char*>(to);
    while (bytes > 0) {
      const SystemCall got = system_call([&] { return ::pread(file_.get(), at, static_cast<size_t>(bytes), offset); });
      require(got.ok() && got.value > 0, "{}: {} at byte {}", path_, got.ok() ? "ends" : got.why(), offset);
      at += got.value, bytes -= got.value, offset += got.value;
    }
  }
  void write(const void* from, int64_t bytes, int64_t offset) const {
    const auto* at = static_cast<const char*>(from);
    while (bytes > 0) {
      const SystemCall put = system_call([&] { return ::pwrite(file_.get(), at, static_cast<size_t>(bytes), offset); });
      require(put.ok(), "{}: cannot write: {}", path_, put.why());
      at += put.value, bytes -= put.value, offset += put.value;
    }
  }
  void resize(int64_t bytes) const {
    const SystemCall resized = system_call([&] { return ::ftruncate(file_.get(), bytes); });
    require(resized.ok(), "{}: cannot make it {} bytes: {}", path_, bytes, resized.why());
  }
  // NOTE: some file systems report a failed write only at the close.
  void close() {
    const SystemCall closed = system_call_once([&] { return ::close(file_.release()); });
    require(closed.ok(), "{}: cannot write: {}", path_, closed.why());
  }

 private:
  std::string path_;
  Descriptor file_;
};

// numpy's names of a type, without the byte order.
struct TypeNames {
  DType dtype;
  std::initializer_list<std::string_view> names;
};
const std::initializer_list<TypeNames> kTypes{
    {DType::fp32, {"f4", "f", "float32", "single"}},
    {DType::fp16, {"f2", "e", "float16", "half"}},
    {DType::int32, {"i4", "i", "int32", "intc"}},
    {DType::bf16, {"V2", "bfloat16"}},
    {DType::int8, {"i1", "b", "int8"}},
    {DType::fp8_e4m3, {"V1", "float8_e4m3fn"}},
};

bool is_uint16(std::string_view name) { return name == "u2" || name == "H" || name == "uint16" || name == "ushort"; }

// '<' is little endian; '=', '|' and no mark are this machine's order, which is the same.
std::string_view without_order(std::string_view descr) {
  if (descr.starts_with('<') || descr.starts_with('>') || descr.starts_with('=') || descr.starts_with('|'))
    descr.remove_prefix(1);
  return descr;
}

DType dtype_of_descr(const std::string& path, const std::string& descr, DType wanted) {
  const std::string_view name = without_order(descr);
  const bool wide = name == "f8" || name == "d" || name == "float64" || name == "double" || name == "float";
  if (wide) fail(ErrorKind::invalid_input, "{}: dtype '{}' (float64): save .astype(np.float32)", path, descr);
  for (const TypeNames& type : kTypes) {
    if (std::ranges::find(type.names, name) == type.names.end()) continue;
    require(!descr.starts_with('>'), "{}: dtype '{}' is big endian: save .astype('<{}')", path, descr,
            descr.substr(std::min<size_t>(1, descr.size())));
    return type.dtype;
  }
  if (is_uint16(name) && wanted == DType::bf16 && !descr.starts_with('>')) return DType::bf16;
  if (is_uint16(name))
    fail(ErrorKind::invalid_input, "{}: dtype '{}' is read as bf16 only with --dtype bf16", path, descr);
  fail(ErrorKind::invalid_input, "{}: dtype '{}': want '<f4', '<f2', '<V2' or 'bfloat16' (bf16)", path, descr);
}

// The dictionary's text. Sets the offset of the data.
std::string header_text(const std::string& path, const File& file, int64_t& data_offset) {
  const int64_t size = file.size();
  unsigned char head[12] = {};
  require(size >= 12, "{}: {} bytes, too short for a .npy file", path, size);
  file.read(head, sizeof head, 0);
  require(std::memcmp(head, kMagic, kMagicBytes) == 0, "{}: not a .npy file", path);
  require(head[6] >= 1 && head[6] <= 3, "{}: .npy format version {}: want 1 to 3", path, head[6]);
  int64_t length = head[8] + head[9] * 256;
  data_offset = 10;
  if (head[6] > 1) {
    length += head[10] * 65536 + static_cast<int64_t>(head[11]) * 16777216;
    data_offset = 12;
  }
  require(length <= kMaxHeader && data_offset + length <= size, "{}: truncated in its .npy header", path);
  std::string text(static_cast<size_t>(length), ' ');
  file.read(text.data(), length, data_offset);
  data_offset += length;
  return text;
}

// The bytes before the data.
std::string head_of(const NpyHeader& header) {
  const auto descr = [&] {
    if (header.dtype == DType::fp32) return "<f4";
    if (header.dtype == DType::fp16) return "<f2";
    if (header.dtype == DType::int32) return "<i4";
    if (header.dtype == DType::int8) return "|i1";
    if (header.dtype == DType::fp8_e4m3) return "|V1";
    return header.uint16 ? "<u2" : "<V2";
  };
  std::string text =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}, {}), }}", descr(), header.rows, header.cols);
  // The data starts at a multiple of 64 bytes, the header ends with a newline.
  text.append(63 - (10 + text.size()) % 64, ' ');
  text += '\n';
  std::string head(kMagic, kMagicBytes);
  head += {1, 0, static_cast<char>(text.size() % 256), static_cast<char>(text.size() / 256)};
  return head + text;
}

void check_block(const std::string& path, const NpyHeader& header, int64_t row, int64_t col, const Tensor& tensor) {
  require(tensor.dtype == header.dtype, "{}: holds {}, wanted {}", path, to_string(header.dtype),
          to_string(tensor.dtype));
  require(row >= 0 && col >= 0 && row + tensor.rows <= header.rows && col + tensor.cols <= header.cols,
          "{}: is {} x {}, but rows {}..{} and columns {}..{} are wanted", path, header.rows, header.cols, row,
          row + tensor.rows, col, col + tensor.cols);
}

// Calls move(address of a row, its bytes, its offset in the file) for every row of the block.
template <class Move>
void for_each_row(const NpyHeader& header, int64_t row, int64_t col, const Tensor& tensor, const Move& move) {
  const int64_t element = bytes_of(header.dtype);
  for (int64_t i = 0; i < tensor.rows; ++i) {
    const int64_t offset = header.data_offset + ((row + i) * header.cols + col) * element;
    move(static_cast<char*>(tensor.data) + i * tensor.row_stride * element, tensor.cols * element, offset);
  }
}

}  // namespace

NpyHeader read_npy_header(const std::string& path, DType wanted) {
  const File file(path, O_RDONLY | O_NONBLOCK);
  NpyHeader header;
  const NpyDictionary dictionary = parse_npy_dictionary(path, header_text(path, file, header.data_offset));
  header.dtype = dtype_of_descr(path, dictionary.descr, wanted);
  header.uint16 = is_uint16(without_order(dictionary.descr));
  const std::vector<int64_t>& extents = dictionary.shape;
  require(!extents.empty(), "{}: shape () is a single number: want a matrix or a vector: save .reshape(1, 1)", path);
  require(extents.size() <= 2, "{}: shape ({}): want a matrix or a vector", path, fmt::join(extents, ", "));
  header.vector = extents.size() == 1;
  const Shape shape{header.vector ? 1 : extents[0], extents.back()};
  // One row or one column has the same layout in C order.
  require(!dictionary.fortran_order || shape.rows <= 1 || shape.cols <= 1,
          "{}: is in Fortran order: save np.ascontiguousarray of it", path);
  header.rows = shape.rows;
  header.cols = shape.cols;
  const int64_t held = file.size() - header.data_offset;
  const int64_t element = bytes_of(header.dtype);
  // NOTE: these products are safe only after the checks of the bounds.
  const bool fits =
      shape.cols <= INT64_MAX / element && (shape.cols == 0 || shape.rows <= INT64_MAX / (shape.cols * element));
  require(fits, "{}: shape {} x {} overflows", path, shape.rows, shape.cols);
  const int64_t row_bytes = shape.cols * element;
  require(held >= shape.rows * row_bytes, "{}: truncated: {} x {} {} need {} bytes, it holds {}", path, shape.rows,
          shape.cols, to_string(header.dtype), shape.rows * row_bytes, held);
  return header;
}

struct NpyReader::OpenFile {
  OpenFile(const std::string& path, int flags) : file(path, flags) {}
  File file;
};

NpyReader::NpyReader(const std::string& path, const NpyHeader& header)
    : path_(path), header_(header), open_(std::make_shared<const OpenFile>(path, O_RDONLY)) {}

void NpyReader::read(int64_t row, int64_t col, const Tensor& tensor) const {
  check_block(path_, header_, row, col, tensor);
  for_each_row(header_, row, col, tensor,
               [&](void* at, int64_t bytes, int64_t offset) { open_->file.read(at, bytes, offset); });
}

void read_npy_block(const std::string& path, const NpyHeader& header, int64_t row, int64_t col, const Tensor& tensor) {
  NpyReader(path, header).read(row, col, tensor);
}

NpyHeader with_offset(NpyHeader header) {
  header.data_offset = static_cast<int64_t>(head_of(header).size());
  return header;
}

NpyHeader create_npy(const std::string& path, const NpyHeader& shape) {
  const NpyHeader header = with_offset(shape);
  File file(path, O_WRONLY | O_CREAT | O_TRUNC);
  file.write(head_of(header).data(), header.data_offset, 0);
  file.resize(header.data_offset + header.rows * header.cols * bytes_of(header.dtype));
  file.close();
  return header;
}

void write_npy_block(const std::string& path, const NpyHeader& header, int64_t row, int64_t col, const Tensor& tensor) {
  check_block(path, header, row, col, tensor);
  File file(path, O_WRONLY);
  for_each_row(header, row, col, tensor,
               [&](const void* at, int64_t bytes, int64_t offset) { file.write(at, bytes, offset); });
  file.close();
}

}  // namespace tilewire::cli
