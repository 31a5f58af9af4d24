// Verifies outputs: in full, by samples, and by Freivalds' check.
// Called by the bench, by `tilewire run --verify` and by tests.
#include "operators/verify.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "core/convert.hpp"
#include "core/json_text.hpp"
#include "core/text.hpp"
#include "operators/products.hpp"
#include "operators/summed_rows.hpp"
#include "tilewire/json.hpp"

namespace tilewire {
namespace {

constexpr int64_t kManyElements = 64;
constexpr int64_t kMostSamples = int64_t{1} << 22;  // limit of the sampled elements of one output
constexpr size_t kDoubtfulRows = 16;                // rows with NaN or Inf that are recomputed per batch
constexpr int64_t kNormBatch = 64;                  // rows of a norm that are compared at once

// Rows of one output with their exact values.
struct ExactRows {
  std::vector<int64_t> rows;  // local, sorted
  DoubleMatrix values{0, 0};
};

// One output of this rank, or a block of its rows, and its expected values. Rows count from the first of the block.
struct Verified {
  size_t output = 0;  // index among the outputs
  Part part;
  std::string name;
  ExactRows exact;
  RowSizes sizes;  // of every row
};

std::vector<int64_t> sample_rows(int64_t num_rows, int64_t wanted, uint64_t seed) {
  std::vector<int64_t> rows;
  if (wanted >= num_rows) {
    rows.resize(num_rows);
    std::iota(rows.begin(), rows.end(), 0);
    return rows;
  }
  rows = {0, num_rows - 1};
  std::vector<float> places(wanted);
  random_row(seed, 0, 0, wanted, DType::fp32, places.data());
  for (float place : places) rows.push_back(static_cast<int64_t>((place + 1) / 2 * static_cast<float>(num_rows - 1)));
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

// The comparison of one row: |out - ref|^2 (infinite if NaN or Inf do not agree), |ref|^2, and whether each element is
// within its RowLimit.
struct RowError {
  double error = 0;
  double reference = 0;
  bool close = true;
};

struct RowLimit {
  double allowed = 0;
  double usual = 0;
  double step = 0;  // absolute error that rounding near zero may add
};

RowError compare_row(const Tensor& out, const float* values, const double* ref, const RowLimit& limit) {
  RowError sum;
  for (int64_t col = 0; col < out.cols; ++col) {
    if (std::isfinite(values[col]) && std::isfinite(ref[col])) {
      const double error = static_cast<double>(values[col]) - ref[col];
      sum.error += error * error;
      sum.reference += ref[col] * ref[col];
      sum.close = sum.close && std::abs(error) <= limit.allowed * (std::abs(ref[col]) + limit.usual) + limit.step;
      continue;
    }
    // A finite double may round to Inf in the output's type.
    uint32_t bits = 0;
    store_one(static_cast<float>(ref[col]), &bits, out.dtype);
    const float rounded = load_one(&bits, out.dtype);
    const bool same = std::isnan(rounded) ? std::isnan(values[col]) : rounded == values[col];
    if (!same) sum.error = std::numeric_limits<double>::infinity();
  }
  return sum;
}

// The squares of the rows that are known.
std::vector<double> squares_of(const Part& part, const ExactRows& exact) {
  std::vector<double> squares(static_cast<size_t>(part.shape.rows));
  for (size_t i = 0; i < exact.rows.size(); ++i) {
    const double* values = exact.values.values.data() + i * part.shape.cols;
    squares[exact.rows[i]] = std::inner_product(values, values + part.shape.cols, values, 0.0);
  }
  return squares;
}

const float* load(const Tensor& tensor, int64_t row, std::vector<float>& line) {
  line.resize(tensor.cols);
  const auto* from = static_cast<const std::byte*>(tensor.data) + row * tensor.row_stride * bytes_of(tensor.dtype);
  load_row(from, tensor.dtype, tensor.cols, line.data());
  return line.data();
}

}  // namespace

struct Expected::State {
  State(const Operator& asked, const Problem& problem, int num_ranks, int rank, ReadRow read);

  Operator op;
  Inputs inputs;
  std::vector<Shape> shapes;  // of the outputs
  std::vector<double> signs;  // random vector of +-1, by global column
  std::vector<Verified> targets;

  /// Absolute error by which rounding may change an output element near zero.
  [[nodiscard]] double step_of(const Verified& target, DType out, DType wire) const;
  void compare_exact(Comparison& into, const Verified& target, const ExactRows& exact, const Tensor& out,
                     double step) const;
  void compare_dots(Comparison& into, const Verified& target, const Tensor& out, double step) const;
  void compare_doubtful(Comparison& into, const Verified& target, const std::vector<int64_t>& rows, const Tensor& out,
                        double step) const;
  void compare_norms(Comparison& into, Verified target, const Tensor& sum, const Tensor& out, double step) const;
  void compare_quantised(Comparison& into, const Verified& target, const Tensor& sum, const Tensor& out,
                         const Tensor& scales) const;
  /// The norms of `count` rows of the sum, as they are.
  [[nodiscard]] DoubleMatrix norms_of(const Part& part, const Tensor& sum, int64_t first, int64_t count) const;
  /// The output whose rows are normalised.
  [[nodiscard]] size_t output_of_sum() const;
};

namespace {

void count_wrong(Comparison& into, const Verified& target, int64_t row, const std::string& why) {
  if (into.wrong++ == 0) {
    into.first = fmt::format("row {} of {} on rank {}: {}", target.part.first_row() + row, target.name,
                             target.part.meaning.rank, why);
  }
}

std::string too_far(double error_squares, double size_squares, double allowed) {
  return fmt::format("error {:.3g} of its size, allowed {:.3g}", std::sqrt(error_squares / size_squares), allowed);
}

// Outputs that are only moved must keep their bits, and counts are exact.
bool is_exact(Role role) {
  return role == Role::a || role == Role::dropped || (is_of_groups(role) && role != Role::expert_h);
}

// Half the distance between the smallest numbers of a type.
double half_step(DType dtype) { return dtype == DType::bf16 ? 0x1p-134 : dtype == DType::fp16 ? 0x1p-25 : 0x1p-150; }

}  // namespace

double Expected::State::step_of(const Verified& target, DType out, DType wire) const {
  if (is_exact(target.part.meaning.role)) return 0;
  // Partials that are inputs are rounded again only if the wire type is coarser.
  const auto dtype = inputs.dtype_of_partials(target.part);
  const double given = dtype ? half_step(*dtype) : 0;
  const double each = half_step(wire) > given ? half_step(wire) : 0;
  // Near zero the sum of numbers of one type is exact in that type. It is rounded only if the output's type is coarser.
  const bool rounded = inputs.has_epilogue() || std::max(given, each) < half_step(out);
  const auto partials = static_cast<double>(inputs.num_partials(target.part));
  return partials * each * std::abs(inputs.scale()) + (rounded ? half_step(out) : 0);
}

void Expected::State::compare_exact(Comparison& into, const Verified& target, const ExactRows& exact, const Tensor& out,
                                    double step) const {
  const double tolerance = is_exact(target.part.meaning.role) ? 0 : into.tolerance;
  std::vector<float> line;
  for (size_t i = 0; i < exact.rows.size(); ++i) {
    const int64_t row = exact.rows[i];
    double products = target.sizes.squares.empty() ? 0 : target.sizes.squares[row];
    if (!std::isfinite(products)) products = 0;
    const auto cols = static_cast<double>(out.cols);
    const RowLimit limit{4 * tolerance, cols > 0 ? std::sqrt(products / cols) : 0, step};
    const double* wanted = exact.values.values.data() + i * out.cols;
    const RowError sum = compare_row(out, load(out, row, line), wanted, limit);
    const double size = std::max(sum.reference, products);
    into.error_squares += sum.error;
    into.reference_squares += sum.reference;
    into.size_squares += size;
    into.step_squares += cols * step * step;
    into.elements += out.cols;
    if (sum.error > 4 * (tolerance * tolerance * size + cols * step * step)) {
      count_wrong(into, target, row, too_far(sum.error, size, 2 * tolerance));
    } else if (!sum.close) {
      count_wrong(into, target, row, fmt::format("an element is off by more than {:.3g} of its size", 4 * tolerance));
    }
  }
}

// Recompute rows whose dot product is NaN or Inf, in batches, until one of them is wrong: their dot products prove
// little.
void Expected::State::compare_doubtful(Comparison& into, const Verified& target, const std::vector<int64_t>& rows,
                                       const Tensor& out, double step) const {
  const int64_t known = into.wrong;
  for (size_t begin = 0; begin < rows.size() && into.wrong == known; begin += kDoubtfulRows) {
    const size_t end = std::min(rows.size(), begin + kDoubtfulRows);
    ExactRows exact{{rows.begin() + begin, rows.begin() + end}};
    exact.values = inputs.exact_rows(target.part, exact.rows);
    compare_exact(into, target, exact, out, step);
  }
}

void Expected::State::compare_dots(Comparison& into, const Verified& target, const Tensor& out, double step) const {
  if (target.sizes.dots.empty()) return;
  std::vector<float> line;
  std::vector<int64_t> doubtful;
  size_t both = 0;
  const double* sign = signs.data() + target.part.meaning.col;
  for (int64_t row = 0; row < out.rows; ++row) {
    const float* values = load(out, row, line);
    double dot = 0;
    double squares = 0;
    for (int64_t col = 0; col < out.cols; ++col) {
      const double value = values[col];
      dot += sign[col] * value;
      squares += value * value;
    }
    const double wanted = target.sizes.dots[row];
    if (!std::isfinite(dot) || !std::isfinite(wanted)) {
      // If both are NaN or Inf, recompute only the first few rows.
      const bool agree = !std::isfinite(dot) && !std::isfinite(wanted);
      if (!agree || both++ < kDoubtfulRows) doubtful.push_back(row);
      continue;
    }
    into.dot_error_squares += (dot - wanted) * (dot - wanted);
    into.dot_squares += wanted * wanted;
    const double error = (dot - wanted) * (dot - wanted);
    const double size = std::max(squares, target.sizes.squares[row]);
    // NOTE: errors of half a step add up as a random walk; four times its length is beyond chance.
    const double steps = 4 * static_cast<double>(out.cols) * step * step;
    if (error > 4 * (into.tolerance * into.tolerance * size + steps)) {
      count_wrong(into, target, row, too_far(error, size, 2 * into.tolerance));
    }
  }
  compare_doubtful(into, target, doubtful, out, step);
}

DoubleMatrix Expected::State::norms_of(const Part& part, const Tensor& sum, int64_t first, int64_t count) const {
  DoubleMatrix norms(count, sum.cols);
  std::vector<float> line;
  for (int64_t row = 0; row < count; ++row) {
    const float* values = load(sum, first + row, line);
    for (int64_t col = 0; col < sum.cols; ++col) norms.at(row, col) = values[col];
  }
  inputs.normalise(part, norms);
  return norms;
}

// Compare every scale with that of the norm of the sum's row as it is, and every element with this norm.
void Expected::State::compare_quantised(Comparison& into, const Verified& target, const Tensor& sum, const Tensor& out,
                                        const Tensor& scales) const {
  constexpr double kOfFp32 = 1e-5;  // relative error of a norm in fp32
  const bool fp8 = out.dtype == DType::fp8_e4m3;
  std::vector<float> line;
  for (int64_t begin = 0; begin < out.rows; begin += kNormBatch) {
    DoubleMatrix norms = norms_of(target.part, sum, begin, std::min(kNormBatch, out.rows - begin));
    const std::vector<double> wanted = quantise(out.dtype, norms);
    for (int64_t row = 0; row < norms.rows; ++row) {
      const double scale = wanted[row];
      const float given = *load(scales, begin + row, line);
      const bool finite = std::isfinite(scale) && std::isfinite(given);
      const bool same = finite ? std::abs(given - scale) <= kOfFp32 * scale : std::isnan(scale) == std::isnan(given);
      if (!same) {
        count_wrong(into, target, begin + row, fmt::format("scale {}, wanted {}", given, scale));
        continue;
      }
      const float* values = load(out, begin + row, line);
      for (int64_t col = 0; col < out.cols && finite; ++col) {
        const double number = norms.at(row, col);
        // Half a step of int8; of fp8_e4m3, whose numbers have four bits, and steps of 2^-9 near zero.
        const double rounding = fp8 ? std::max(std::abs(number) * 0x1p-4, 0x1p-10) : 0.5;
        if (std::abs(values[col] - number) <= rounding + 3 * kOfFp32 * std::abs(number)) continue;
        count_wrong(into, target, begin + row, fmt::format("element {} is {}, wanted {}", col, values[col], number));
        break;
      }
    }
  }
}

// Compare every row with the norm of the sum's row as it is, in batches.
void Expected::State::compare_norms(Comparison& into, Verified target, const Tensor& sum, const Tensor& out,
                                    double step) const {
  target.sizes.squares.resize(out.rows);
  for (int64_t begin = 0; begin < out.rows; begin += kNormBatch) {
    ExactRows exact;
    exact.rows.resize(static_cast<size_t>(std::min(kNormBatch, out.rows - begin)));
    std::iota(exact.rows.begin(), exact.rows.end(), begin);
    exact.values = norms_of(target.part, sum, begin, std::ssize(exact.rows));
    for (int64_t row = 0; row < exact.values.rows; ++row) {
      for (int64_t col = 0; col < out.cols; ++col)
        target.sizes.squares[begin + row] += exact.values.at(row, col) * exact.values.at(row, col);
    }
    compare_exact(into, target, exact, out, step);
  }
}

size_t Expected::State::output_of_sum() const {
  const auto is_sum = [](const Verified& target) { return target.part.meaning.role == Role::partial; };
  return std::ranges::find_if(targets, is_sum)->output;
}

Expected::State::State(const Operator& asked, const Problem& problem, int num_ranks, int rank, ReadRow read)
    : op(asked), inputs(op, problem, num_ranks, std::move(read)) {
  for (const Buffer& buffer : inputs.buffers()) {
    if (buffer.scope == Scope::output) shapes.push_back(memory_shape_on(buffer, rank));
  }
}

namespace {

const Operator& operator_of(const Problem& problem, int num_ranks) {
  validate(problem, num_ranks);
  return find_operator(problem.op);
}

// The rows of an output that are a part.
Tensor rows_of_part(const Tensor& output, const Part& part) {
  Tensor rows = output;
  rows.rows = part.shape.rows;
  rows.data = static_cast<std::byte*>(output.data) + part.first_row() * output.row_stride * bytes_of(output.dtype);
  return rows;
}

}  // namespace

Expected::Expected(const Problem& problem, int num_ranks, int rank, ReadRow read, const VerifyOptions& options)
    : Expected(operator_of(problem, num_ranks), problem, num_ranks, rank, std::move(read), options) {}

Expected::Expected(const Operator& op, const Problem& problem, int num_ranks, int rank, ReadRow read,
                   const VerifyOptions& options)
    : state_(std::make_unique<State>(op, problem, num_ranks, rank, std::move(read))) {
  const Inputs& inputs = state_->inputs;
  state_->signs = inputs.random_signs(options.seed);
  const bool small = inputs.work() <= options.reference_work;
  const bool by_rows = inputs.has_steps();
  const auto reference = small && !by_rows ? inputs.reference_outputs(rank) : std::vector<DoubleMatrix>{};
  const auto first_output =
      std::ranges::find(inputs.buffers(), Scope::output, &Buffer::scope) - inputs.buffers().begin();
  const std::vector<Part> parts = inputs.outputs_of(rank);
  for (const Part& part : parts) {
    const auto output = static_cast<size_t>(part.meaning.buffer - first_output);
    Verified target{output, part, inputs.buffers()[part.meaning.buffer].name, {}, {}};
    // The norm's rows are compared with those of the sum, which is verified itself.
    if (part.meaning.role == Role::normed || part.meaning.role == Role::norm_scale) {
      state_->targets.push_back(std::move(target));
      continue;
    }
    const auto same = [&](const Part& other) { return other.meaning.buffer == part.meaning.buffer; };
    const int64_t blocks = std::ranges::count_if(parts, same);
    const int64_t by_work = options.sample_work / blocks / std::max<int64_t>(inputs.work_per_row(part), 1);
    const int64_t by_memory = kMostSamples / std::max<int64_t>(part.shape.cols, 1);
    const int64_t wanted = small ? part.shape.rows : std::max<int64_t>(4, std::min(by_work, by_memory));
    if (by_rows) {
      const std::vector<int64_t> defined = inputs.defined_rows(part);
      const int64_t all = small ? std::ssize(defined) : wanted;
      for (const int64_t i : sample_rows(std::ssize(defined), all, options.seed))
        target.exact.rows.push_back(defined[i]);
    } else {
      target.exact.rows = sample_rows(part.shape.rows, wanted, options.seed);
    }
    target.exact.values =
        small && !by_rows ? reference[state_->targets.size()] : inputs.exact_rows(part, target.exact.rows);
    target.sizes = inputs.row_sizes(part, state_->signs);
    if (problem.experts || joins_columns(problem.epilogue)) target.sizes.squares = squares_of(part, target.exact);
    state_->targets.push_back(std::move(target));
  }
}

Expected::~Expected() = default;
Expected::Expected(Expected&&) noexcept = default;
Expected& Expected::operator=(Expected&&) noexcept = default;

Comparison Expected::compare(std::span<const Tensor> outputs, const Tolerance& tolerance) const {
  const std::vector<Shape>& shapes = state_->shapes;
  require(outputs.size() == shapes.size(), "verification got {} outputs, the operator has {}", outputs.size(),
          shapes.size());
  Comparison sum{.tolerance = tolerance.relative};
  for (const Verified& target : state_->targets) {
    const Tensor& whole = outputs[target.output];
    const Shape& shape = shapes[target.output];
    require(whole.rows == shape.rows && whole.cols == shape.cols,
            "verification of {}: {} x {} elements, expected {} x {}", target.name, whole.rows, whole.cols, shape.rows,
            shape.cols);
    const Tensor out = rows_of_part(whole, target.part);
    if (target.part.meaning.role == Role::norm_scale) continue;  // compared with the rows
    if (is_quantised(out.dtype)) {
      state_->compare_quantised(sum, target, outputs[state_->output_of_sum()], out, outputs[target.output + 1]);
      continue;
    }
    const double step = state_->step_of(target, out.dtype, tolerance.wire);
    if (target.part.meaning.role == Role::normed) {
      state_->compare_norms(sum, target, outputs[state_->output_of_sum()], out, step);
      continue;
    }
    state_->compare_exact(sum, target, target.exact, out, step);
    state_->compare_dots(sum, target, out, step);
  }
  return sum;
}

void Comparison::add(const Comparison& other) {
  tolerance = std::max(tolerance, other.tolerance);
  error_squares += other.error_squares;
  reference_squares += other.reference_squares;
  size_squares += other.size_squares;
  dot_error_squares += other.dot_error_squares;
  dot_squares += other.dot_squares;
  step_squares += other.step_squares;
  elements += other.elements;
  if (wrong == 0) first = other.first;
  wrong += other.wrong;
}

double Comparison::rel_error() const {
  const auto ratio = [](double error, double size) {
    if (error == 0) return 0.0;
    return size > 0 ? std::sqrt(error / size) : std::numeric_limits<double>::infinity();
  };
  return std::max(ratio(error_squares, reference_squares), ratio(dot_error_squares, dot_squares));
}

bool Comparison::ok() const {
  // Skip the mean of very few elements; their own limits hold.
  const bool many = elements >= kManyElements;
  return wrong == 0 && (!many || error_squares <= tolerance * tolerance * size_squares + step_squares);
}

std::string Comparison::text() const {
  const std::string error = fmt::format("rel_error {:.2e}", rel_error());
  if (ok()) return error + ", ok";
  return fmt::format("{}, WRONG: {}", error,
                     wrong > 0 ? fmt::format("{} rows, {}", wrong, first) : fmt::format("allowed {:.2e}", tolerance));
}

Tolerance tolerance_of(const Problem& problem, const Config& config) {
  const auto of = [](DType dtype) { return dtype == DType::bf16 ? 0x1p-7 : dtype == DType::fp16 ? 0x1p-10 : 1e-5; };
  double tolerance = of(out_dtype_of(problem));
  if (problem.experts) tolerance = std::max(tolerance, of(problem.dtype));  // the type between the products
  if (config.wire) tolerance = std::max(tolerance, of(*config.wire));
  if (problem.allow_tf32 && problem.dtype == DType::fp32) tolerance = std::max(tolerance, 0x1p-10);
  return {tolerance, config.wire.value_or(out_dtype_of(problem))};
}

Comparison verify(Group& group, const Expected& expected, std::span<const Tensor> outputs, const Tolerance& tolerance) {
  const Comparison mine = expected.compare(outputs, tolerance);
  const auto number = [](double value) { return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json("inf"); };
  const nlohmann::json sent = {number(mine.error_squares),
                               mine.reference_squares,
                               mine.size_squares,
                               number(mine.dot_error_squares),
                               mine.dot_squares,
                               number(mine.step_squares),
                               mine.elements,
                               mine.wrong,
                               mine.first};
  Comparison sum{.tolerance = tolerance.relative};
  for (const std::string& text : group.all_gather(json_text(sent))) {
    const auto got = parse_json(text, "a comparison");
    const auto value = [](const nlohmann::json& json) {
      return json.is_number() ? json.get<double>() : std::numeric_limits<double>::infinity();
    };
    sum.add({tolerance.relative, value(got[0]), got[1].get<double>(), got[2].get<double>(), value(got[3]),
             got[4].get<double>(), value(got[5]), got[6].get<int64_t>(), got[7].get<int64_t>(),
             got[8].get<std::string>()});
  }
  return sum;
}

}  // namespace tilewire
