// Reads inputs from files, and writes outputs to files.
// Called by `tilewire run`.
#include "cli/files.hpp"

#include <algorithm>

#include "cli/counted.hpp"
#include "core/convert.hpp"
#include "core/text.hpp"
#include "tilewire/print.hpp"
#include "tilewire/spi/operator.hpp"

namespace tilewire::cli {
namespace {

constexpr std::string_view kRank = "{rank}";

std::string size_text(const std::string& path, const NpyHeader& header) {
  return header.vector ? fmt::format("{}: is a vector of {}", path, counted(header.cols, "element"))
                       : fmt::format("{}: is {} x {}", path, header.rows, header.cols);
}

std::string names_of(const std::vector<Buffer>& buffers, Scope scope) {
  std::string names;
  for (const Buffer& buffer : buffers) {
    if (buffer.scope == scope) names += (names.empty() ? "" : ", ") + buffer.name;
  }
  return names;
}

}  // namespace

bool is_per_rank(const std::string& path) { return path.find(kRank) != std::string::npos; }

std::string path_of_rank(std::string path, int rank) {
  const std::string number = std::to_string(rank);
  for (size_t at = path.find(kRank); at != std::string::npos; at = path.find(kRank, at + number.size())) {
    path.replace(at, kRank.size(), number);
  }
  return path;
}

FileNames parse_file_names(const std::string& flag, const std::vector<std::string>& texts) {
  FileNames names;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    require(equals != std::string::npos && equals > 0 && equals + 1 < text.size(), "{} {}: want NAME=FILE", flag, text);
    const bool fresh = names.emplace(text.substr(0, equals), text.substr(equals + 1)).second;
    require(fresh, "{} {}: given twice", flag, text.substr(0, equals));
  }
  return names;
}

void check_buffer_names(const Problem& problem, const FileNames& inputs, const FileNames& outputs) {
  const std::vector<Buffer> buffers = find_operator(problem.op).buffers(problem, 1);
  for (const auto& [scope, files] : {std::pair{Scope::input, &inputs}, std::pair{Scope::output, &outputs}}) {
    for (const auto& [name, path] : *files) {
      const bool known = std::ranges::any_of(
          buffers, [&](const Buffer& buffer) { return buffer.scope == scope && buffer.name == name; });
      require(known, "{} has no {} '{}'; it has: {}", problem.op, to_string(scope), name, names_of(buffers, scope));
    }
  }
  for (const Buffer& buffer : buffers) {
    require(buffer.scope != Scope::input || inputs.contains(buffer.name),
            "no file for input '{}': give --input {}=FILE", buffer.name, buffer.name);
  }
}

ProblemFiles::ProblemFiles(const Problem& problem, int num_ranks, const FileNames& inputs, const FileNames& outputs,
                           const std::vector<FlagFile>& others, bool write_uint16)
    : num_ranks_(num_ranks),
      write_uint16_(write_uint16),
      dtype_(problem.dtype),
      buffers_(find_operator(problem.op).buffers(problem, num_ranks)),
      entries_(buffers_.size()) {
  check_buffer_names(problem, inputs, outputs);
  for (const Meaning& meaning : find_operator(problem.op).meanings(problem, num_ranks)) {
    Entry& entry = entries_[meaning.buffer];
    const Shape shape = memory_shape_on(buffers_[meaning.buffer], meaning.rank);
    // A file holds the buffer of all ranks: it begins where the part of rank 0 begins.
    if (entry.meanings.empty()) entry.origin = {meaning.row, meaning.col};
    entry.in_blocks = entry.in_blocks || is_of_groups(meaning.role);
    Meaning in_file = meaning;
    in_file.row -= entry.origin.rows;
    in_file.col -= entry.origin.cols;
    if (std::ssize(entry.meanings) > meaning.rank) {
      entry.in_blocks = true;
      continue;
    }
    const auto same = [&](const Meaning& other) {
      return other.row == in_file.row && other.col == in_file.col &&
             memory_shape_on(buffers_[other.buffer], other.rank) == shape;
    };
    if (std::ranges::none_of(entry.meanings, same)) entry.elements += shape.rows * shape.cols;
    entry.meanings.push_back(in_file);
    entry.global.rows = std::max(entry.global.rows, in_file.row + shape.rows);
    entry.global.cols = std::max(entry.global.cols, in_file.col + shape.cols);
  }
  for (const auto& [scope, files] : {std::pair{Scope::input, &inputs}, std::pair{Scope::output, &outputs}}) {
    for (const auto& [name, path] : *files) {
      const auto found = std::ranges::find_if(
          buffers_, [&](const Buffer& buffer) { return buffer.scope == scope && buffer.name == name; });
      Entry& entry = entries_[found - buffers_.begin()];
      entry.path = path;
      entry.per_rank = is_per_rank(path);
    }
  }
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (buffers_[i].scope != Scope::input) continue;
    const bool sum = entries_[i].meanings.front().role == Role::partial;
    require((!sum && is_one_matrix(entries_[i])) || entries_[i].per_rank || num_ranks == 1,
            "input '{}' differs from rank to rank: write {} with {} in its name", buffers_[i].name, entries_[i].path,
            kRank);
    for (int rank = 0; rank < (entries_[i].per_rank ? num_ranks : 1); ++rank) {
      const std::string path = path_of_rank(entries_[i].path, rank);
      entries_[i].readers.emplace_back(path, read_npy_header(path, dtype_));
    }
    check_input(entries_[i], buffers_[i]);
  }
  check_output_files(outputs, others);
}

void ProblemFiles::check_output_files(const FileNames& outputs, const std::vector<FlagFile>& others) const {
  std::vector<FlagFile> written = others;
  std::vector<FlagFile> read;
  for (size_t i = 0; i < buffers_.size(); ++i) {
    const Entry& entry = entries_[i];
    const bool output = outputs.contains(buffers_[i].name) && buffers_[i].scope == Scope::output;
    require(!output || entry.per_rank || is_one_matrix(entry),
            "the parts of output '{}' are no matrix of all ranks: write {} with {} in its name", buffers_[i].name,
            entry.path, kRank);
    const std::string flag = (output ? "--output " : "--input ") + buffers_[i].name;
    for (int rank = 0; rank < (entry.per_rank ? num_ranks_ : 1); ++rank) {
      (output ? written : read).push_back({flag, path_of_rank(entry.path, rank), output});
    }
  }
  check_files(written, read);
}

void ProblemFiles::check_input(const Entry& entry, const Buffer& buffer) {
  for (int rank = 0; rank < std::ssize(entry.readers); ++rank) {
    const NpyHeader& header = entry.readers[rank].header();
    const std::string path = path_of_rank(entry.path, rank);
    require(header.dtype == buffer.dtype, "{}: holds {}, input '{}' must be {}", path, to_string(header.dtype),
            buffer.name, to_string(buffer.dtype));
    const Shape wanted = entry.per_rank ? memory_shape_on(buffer, rank) : entry.global;
    require(header.rows == wanted.rows && header.cols == wanted.cols, "{}, input '{}'{} must be {}{} x {}",
            size_text(path, header), buffer.name,
            entry.per_rank ? fmt::format(" of rank {}", rank) : std::string(" of all ranks"),
            header.vector && wanted.rows != 1 ? "a matrix, " : "", wanted.rows, wanted.cols);
  }
}

ReadRow ProblemFiles::reader() const {
  return [this](int buffer, int rank, int64_t row, float* to) {
    const Entry& entry = entries_[buffer];
    const int64_t cols = memory_shape_on(buffers_[buffer], rank).cols;
    const DType dtype = buffers_[buffer].dtype;
    std::vector<std::byte> line(static_cast<size_t>(cols * bytes_of(dtype)));
    const Tensor tensor = make_tensor(line.data(), dtype, 1, cols);
    const Meaning& meaning = entry.meanings[rank];
    if (entry.per_rank) {
      entry.readers[rank].read(row, 0, tensor);
    } else {
      entry.readers.front().read(meaning.row + row, meaning.col, tensor);
    }
    load_row(line.data(), dtype, cols, to);
  };
}

namespace {

// Replace the name of a temporary file in an Error by its target, which the user knows.
template <class Write>
void write_for(const std::string& target, const std::string& scratch, const Write& write) {
  try {
    write();
  } catch (const Error& error) {
    std::string text = error.what();
    if (text.starts_with(scratch)) text.replace(0, scratch.size(), target);
    throw Error(error.kind(), text + "; its new content is lost");
  }
}

}  // namespace

void ProblemFiles::write(Group& group, const RankTensors& tensors) const {
  size_t output = 0;
  const std::span<const Tensor> results = tensors.results();
  std::vector<OutputFile> made;
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (buffers_[i].scope != Scope::output) continue;
    const Tensor& tensor = results[output++];
    if (!entries_[i].path.empty()) write_pieces(group, entries_[i], buffers_[i], tensor, made);
  }
  group.barrier();
  for (OutputFile& file : made) file.finish();
}

void ProblemFiles::write_pieces(Group& group, const Entry& entry, const Buffer& buffer, const Tensor& tensor,
                                std::vector<OutputFile>& made) const {
  const int rank = group.team().rank;
  const Shape shape = entry.per_rank ? memory_shape_on(buffer, rank) : entry.global;
  const NpyHeader header =
      with_offset({.dtype = buffer.dtype, .rows = shape.rows, .cols = shape.cols, .uint16 = write_uint16_});
  const std::string path = path_of_rank(entry.path, rank);
  std::string scratch;
  if (entry.per_rank || rank == 0) {
    scratch = made.emplace_back(path).scratch();
    write_for(path, scratch, [&] { static_cast<void>(create_npy(scratch, header)); });
  }
  if (!entry.per_rank) scratch = group.all_gather(scratch).front();
  // If several ranks hold the same part, the first of them writes it.
  const Meaning& mine = entry.meanings[rank];
  const auto same = [&](const Meaning& other) { return other.row == mine.row && other.col == mine.col; };
  const bool first = std::ranges::find_if(entry.meanings, same)->rank == rank;
  const int64_t row = entry.per_rank ? 0 : mine.row;
  const int64_t col = entry.per_rank ? 0 : mine.col;
  if (entry.per_rank || first) write_for(path, scratch, [&] { write_npy_block(scratch, header, row, col, tensor); });
}

}  // namespace tilewire::cli
