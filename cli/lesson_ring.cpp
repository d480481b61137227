// Of the lesson: what a ring all-reduce sends, measured on ranks and in closed form.
#include <fmt/format.h>

#include "cli/console.h"
#include "cli/lesson.h"

namespace ringworld {

LessonPart lesson_ring(LessonRanks& ranks) {
  using Json = nlohmann::ordered_json;
  constexpr std::int64_t elements = 1 << 18;
  constexpr std::int64_t bytes = elements * 4;
  constexpr std::int64_t gradient_bytes = 14'000'000'000;  // of 7B parameters, in 16 bits
  Table table({{"ranks N", Align::right},
               {"run as"},
               {"measured bytes", Align::right},
               {"2 S (N-1)/N", Align::right},
               {"in S", Align::right},
               {"GB for 7B in 16 bits", Align::right}});
  Json rows = Json::array();
  for (const int count : {1, 2, 4, 8}) {
    std::int64_t measured = 0;
    std::int64_t of_gradient = 0;
    ranks.run(count, [&](Communicator& communicator) {
      communicator.use(Operation::all_reduce, "ring");
      Backend& backend = communicator.backend();
      const Tensor x = backend.zeros(DType::f32, {elements}, Category::gradients);
      const Traffic before = communicator.traffic();
      communicator.all_reduce(x, x, ReduceOp::sum, "ring").wait();
      if (communicator.rank() == 0) {
        measured = (communicator.traffic() - before).bytes_sent.value;
        of_gradient =
            communicator.expected_traffic(Operation::all_reduce, gradient_bytes / 4, DType::f32)
                .value /
            count;
      }
    });
    const std::int64_t formula = 2 * bytes * (count - 1) / count;
    table.add_row({fmt::format("{}", count), std::string(ranks.where(count)),
                   fmt::format("{}", measured), fmt::format("{}", formula),
                   fmt::format("{:.4g}", static_cast<double>(measured) / bytes),
                   fmt::format("{:.2f}", static_cast<double>(of_gradient) / 1e9)});
    rows.push_back({{"ranks", count},
                    {"run_as", ranks.where(count)},
                    {"bytes_measured", measured},
                    {"bytes_by_formula", formula},
                    {"bytes_of_7b_gradients", of_gradient}});
  }
  return {
      .asked = fmt::format(
          "What one rank sends in a ring all-reduce of S = {} bytes, as its communicator counted; "
          "the lesson's formula; and the algorithm's own closed form for the 14 GB of gradients of "
          "7B parameters.",
          bytes),
      .table = table.text(),
      .found = {"It grows towards 2 S and no further: the reason why rings scale in bandwidth. The "
                "steps, 2 (N-1), grow with N."},
      .practice =
          "NCCL takes rings for large messages; trees, switches and hierarchies save steps.",
      .json = {{"bytes", bytes}, {"rows", rows}}};
}

}  // namespace ringworld
