// The .npy format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
// Called by `tilewire run`.
#include "cli/npy.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <vector>

#include "core/text.hpp"
#include "tilewire/print.hpp"

namespace tilewire::cli {
namespace {

constexpr char kMagic[] = "\x93NUMPY";
constexpr size_t kMagicBytes = 6;
constexpr int64_t kMaxHeader = 1 << 20;

// An open file that closes itself.
class File {
 public:
  File(const std::string& path, int flags) : path_(path), fd_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    require(fd_ >= 0, "{}: {}", path, std::strerror(errno));
  }
  ~File() { ::close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  [[nodiscard]] int64_t size() const {
    struct stat status {};
    require(::fstat(fd_, &status) == 0 && S_ISREG(status.st_mode), "{}: not a regular file", path_);
    return status.st_size;
  }
  void read(void* to, int64_t bytes, int64_t offset) const {
    auto* at = static_cast<char*>(to);
    while (bytes > 0) {
      const ssize_t got = ::pread(fd_, at, static_cast<size_t>(bytes), offset);
      if (got < 0 && errno == EINTR) continue;
      require(got > 0, "{}: {} at byte {}", path_, got == 0 ? "ends" : std::strerror(errno), offset);
      at += got, bytes -= got, offset += got;
    }
  }
  void write(const void* from, int64_t bytes, int64_t offset) const {
    const auto* at = static_cast<const char*>(from);
    while (bytes > 0) {
      const ssize_t put = ::pwrite(fd_, at, static_cast<size_t>(bytes), offset);
      if (put < 0 && errno == EINTR) continue;
      require(put > 0, "{}: cannot write: {}", path_, std::strerror(errno));
      at += put, bytes -= put, offset += put;
    }
  }
  void resize(int64_t bytes) const {
    require(::ftruncate(fd_, bytes) == 0, "{}: cannot make it {} bytes: {}", path_, bytes, std::strerror(errno));
  }

 private:
  std::string path_;
  int fd_;
};

// The text after 'key': in the header's dictionary, up to the comma that ends it.
std::string dictionary_value(const std::string& path, const std::string& text, const std::string& key) {
  const size_t name = text.find("'" + key + "'");
  const size_t colon = name == std::string::npos ? name : text.find(':', name);
  require(colon != std::string::npos, "{}: malformed .npy header: no '{}'", path, key);
  const size_t begin = text.find_first_not_of(' ', colon + 1);
  require(begin != std::string::npos, "{}: malformed .npy header: no value of '{}'", path, key);
  const size_t end = text[begin] == '(' ? text.find(')', begin) : text.find_first_of(",}", begin);
  require(end != std::string::npos, "{}: malformed .npy header: '{}' does not end", path, key);
  return text.substr(begin, end - begin + (text[begin] == '(' ? 1 : 0));
}

DType dtype_of_descr(const std::string& path, std::string descr, DType wanted) {
  const auto quote = [](char c) { return c == '\'' || c == '"' || c == ' '; };
  std::erase_if(descr, quote);
  if (descr == "<f4") return DType::fp32;
  if (descr == "<f2") return DType::fp16;
  if (descr == "<i4") return DType::int32;
  if (descr == "<V2" || descr == "|V2" || descr == "bfloat16" || descr == "<bfloat16") return DType::bf16;
  if (descr == "<u2" && wanted == DType::bf16) return DType::bf16;
  if (descr == "<u2") fail(ErrorKind::invalid_input, "{}: dtype '<u2' is read as bf16 only with --dtype bf16", path);
  if (descr == "<f8") fail(ErrorKind::invalid_input, "{}: dtype '<f8' (float64): save .astype(np.float32)", path);
  fail(ErrorKind::invalid_input, "{}: dtype '{}': want '<f4', '<f2', '<V2' or 'bfloat16' (bf16), or '<i4'", path,
       descr);
}

// "(3, 4)", "(4,)"
std::vector<int64_t> extents_of_text(const std::string& path, const std::string& text) {
  std::vector<int64_t> extents;
  for (size_t at = text.find_first_of("0123456789-"); at != std::string::npos;
       at = text.find_first_of("0123456789-", at)) {
    int64_t extent = -1;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), extent);
    require(error == std::errc{} && extent >= 0, "{}: malformed .npy header: shape {}", path, text);
    extents.push_back(extent);
    at = static_cast<size_t>(end - text.data());
  }
  require(text.front() == '(' && (extents.size() == 1 || extents.size() == 2),
          "{}: shape {}: want a matrix or a vector", path, text);
  return extents;
}

// The dictionary's text; sets where the data starts.
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
  const File file(path, O_RDONLY);
  NpyHeader header;
  const std::string text = header_text(path, file, header.data_offset);
  const std::string descr = dictionary_value(path, text, "descr");
  header.dtype = dtype_of_descr(path, descr, wanted);
  header.uint16 = descr.find("u2") != std::string::npos;
  require(dictionary_value(path, text, "fortran_order").starts_with("False"),
          "{}: is in Fortran order: save np.ascontiguousarray of it", path);
  const std::vector<int64_t> extents = extents_of_text(path, dictionary_value(path, text, "shape"));
  header.vector = extents.size() == 1;
  const Shape shape{header.vector ? 1 : extents[0], extents.back()};
  header.rows = shape.rows;
  header.cols = shape.cols;
  const int64_t held = file.size() - header.data_offset;
  const int64_t element = bytes_of(header.dtype);
  // NOTE: the products may be formed only behind these bounds.
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

NpyHeader create_npy(const std::string& path, NpyHeader header) {
  const auto descr = [&] {
    if (header.dtype == DType::fp32) return "<f4";
    if (header.dtype == DType::fp16) return "<f2";
    if (header.dtype == DType::int32) return "<i4";
    return header.uint16 ? "<u2" : "<V2";
  };
  std::string text =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}, {}), }}", descr(), header.rows, header.cols);
  // The data starts at a multiple of 64 bytes, the header ends with a newline.
  text.append(63 - (10 + text.size()) % 64, ' ');
  text += '\n';
  std::string head(kMagic, kMagicBytes);
  head += {1, 0, static_cast<char>(text.size() % 256), static_cast<char>(text.size() / 256)};
  head += text;
  header.data_offset = static_cast<int64_t>(head.size());
  const File file(path, O_WRONLY | O_CREAT | O_TRUNC);
  file.write(head.data(), header.data_offset, 0);
  file.resize(header.data_offset + header.rows * header.cols * bytes_of(header.dtype));
  return header;
}

void write_npy_block(const std::string& path, const NpyHeader& header, int64_t row, int64_t col, const Tensor& tensor) {
  check_block(path, header, row, col, tensor);
  const File file(path, O_WRONLY);
  for_each_row(header, row, col, tensor,
               [&](const void* at, int64_t bytes, int64_t offset) { file.write(at, bytes, offset); });
}

}  // namespace tilewire::cli
