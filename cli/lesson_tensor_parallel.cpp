// Of the lesson: tensor parallelism. One large matrix product, its weight split by columns and by
// rows over ranks.
#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "cli/console.h"
#include "cli/lesson.h"
#include "runtime/random.h"

namespace ringworld {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t batch = 4;
constexpr std::int64_t width = 8192;

RandomKey key_of(std::string_view name) {
  return {.seed = 1, .purpose = Purpose::synthetic_data, .stream = stream_of(name)};
}

std::vector<double> input() {
  std::vector<double> x(batch * width);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(random_normal(key_of("lesson tensor x"), i));
  }
  return x;
}

// x (batch, width) as it is, or some of its columns.
Tensor upload_columns(Backend& backend, const std::vector<double>& x, std::int64_t first,
                      std::int64_t count) {
  std::vector<double> columns;
  for (std::int64_t row = 0; row < batch; ++row) {
    const auto begin = x.begin() + row * width + first;
    columns.insert(columns.end(), begin, begin + count);
  }
  const Tensor out = backend.empty(DType::f32, {batch, count}, Category::activations);
  backend.upload_values(out, columns);
  return out;
}

// One matrix in memory serves both cases: split by columns W is its transpose, as frameworks store
// weights, (outputs, inputs); split by rows W is the matrix itself. A rank's piece of either is
// then the same run of its rows.
Tensor weight(Backend& backend) {
  Tensor stored = backend.empty(DType::f32, {width, width}, Category::parameters);
  backend.normal(stored, key_of("lesson tensor W"), 0, 0, 1 / std::sqrt(double{width}));
  return stored;
}

// (batch, width) x W, for the two W.
struct Products {
  std::vector<double> by_columns;
  std::vector<double> by_rows;
};

Products unsplit(Backend& backend, const std::vector<double>& x, const Tensor& stored) {
  const Tensor whole = upload_columns(backend, x, 0, width);
  const Tensor out = backend.empty(DType::f32, {batch, width}, Category::activations);
  Products products;
  backend.matmul(out, whole, stored, {.transpose_b = true});
  products.by_columns = backend.download_values(out);
  backend.matmul(out, whole, stored);
  products.by_rows = backend.download_values(out);
  return products;
}

// Of all ranks, on rank 0. `piece` (width / ranks, width): this rank's rows of the stored matrix.
Products split(Communicator& ranks, const std::vector<double>& x, const Tensor& piece) {
  Backend& backend = ranks.backend();
  const bool collects = ranks.rank() == 0;
  const std::int64_t n = ranks.world_size();
  const std::int64_t part = width / n;
  Products products;

  // By columns: every rank has some columns of the output, which are put side by side.
  const Tensor own = backend.empty(DType::f32, {batch, part}, Category::activations);
  backend.matmul(own, upload_columns(backend, x, 0, width), piece, {.transpose_b = true});
  const Tensor blocks =
      collects ? backend.empty(DType::f32, {n, batch, part}, Category::activations) : Tensor();
  ranks.gather(blocks, own, 0, "columns").wait();
  if (collects) {
    const std::vector<double> values = backend.download_values(blocks);
    products.by_columns.resize(values.size());
    for (std::int64_t rank = 0; rank < n; ++rank) {
      for (std::int64_t row = 0; row < batch; ++row) {
        std::copy_n(values.begin() + (rank * batch + row) * part, part,
                    products.by_columns.begin() + row * width + rank * part);
      }
    }
  }

  // By rows: every rank has a part of each output's sum.
  const Tensor sum = backend.empty(DType::f32, {batch, width}, Category::activations);
  backend.matmul(sum, upload_columns(backend, x, ranks.rank() * part, part), piece);
  ranks.reduce(sum, sum, ReduceOp::sum, 0, "rows").wait();
  if (collects) {
    products.by_rows = backend.download_values(sum);
  }
  return products;
}

// The largest difference, over the largest value.
double error_of(const std::vector<double>& split, const std::vector<double>& whole) {
  double difference = 0;
  double largest = 0;
  for (std::size_t i = 0; i < split.size(); ++i) {
    difference = std::max(difference, std::abs(split[i] - whole[i]));
    largest = std::max(largest, std::abs(whole[i]));
  }
  return difference / largest;
}

}  // namespace

LessonPart lesson_tensor_parallel(LessonRanks& ranks) {
  const std::vector<double> x = input();
  const Tensor stored = ranks.prints() ? weight(ranks.backend()) : Tensor();
  const Products whole = ranks.prints() ? unsplit(ranks.backend(), x, stored) : Products();
  Table table({{"ranks", Align::right},
               {"run as"},
               {"columns or rows each", Align::right},
               {"error by columns", Align::right},
               {""},
               {"error by rows", Align::right},
               {""}});
  const auto bits = [](double error) { return error == 0 ? "same bits" : "rounding"; };
  Json rows = Json::array();
  for (const int count : {1, 2, 4, 8}) {
    Products products;
    ranks.run(count, [&](Communicator& communicator) {
      // Threads all see the one matrix; a process gets its piece from rank 0.
      const std::int64_t part = width / count;
      Tensor piece;
      if (ranks.on_processes(count)) {
        piece = communicator.backend().empty(DType::f32, {part, width}, Category::parameters);
        communicator.scatter(piece, stored, 0, "pieces").wait();
      } else {
        piece = stored.rows(communicator.rank() * part, part);
      }
      Products result = split(communicator, x, piece);
      if (communicator.rank() == 0) {
        products = std::move(result);
      }
    });
    if (!ranks.prints()) {
      continue;
    }
    const double columns = error_of(products.by_columns, whole.by_columns);
    const double by_rows = error_of(products.by_rows, whole.by_rows);
    table.add_row({fmt::format("{}", count), std::string(ranks.where(count)),
                   fmt::format("{}", width / count), fmt::format("{:.2g}", columns), bits(columns),
                   fmt::format("{:.2g}", by_rows), bits(by_rows)});
    rows.push_back({{"ranks", count},
                    {"run_as", ranks.where(count)},
                    {"column_error", columns},
                    {"row_error", by_rows}});
  }
  const double epsilon = std::numeric_limits<float>::epsilon();
  return {
      .asked = fmt::format(
          "x {} x {} times W {} x {}, in f32. By columns: every rank computes some columns of the "
          "output, which are concatenated. By rows: every rank has some rows of W and the same "
          "columns of x, and partial outputs are summed. Error: the largest difference from the "
          "unsplit product, over its largest value; f32's machine epsilon is {:.2g}.",
          batch, width, width, width, epsilon),
      .table = table.text(),
      .found = {"By columns no sum is cut, so that only the kernel's order of adding could differ; "
                "by rows every sum is cut into as many as there are ranks."},
      .practice =
          "a row-split layer follows a column-split one, in a node: one all-reduce for both.",
      .json = {{"machine_epsilon", epsilon}, {"rows", rows}}};
}

}  // namespace ringworld
