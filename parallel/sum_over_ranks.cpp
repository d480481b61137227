#include "parallel/sum_over_ranks.h"

#include <span>
#include <utility>
#include <vector>

namespace ringworld {

WideSum sum_over_ranks(Communicator& communicator, const WideSum& own, std::string label) {
  Backend& backend = communicator.backend();
  const std::int64_t ranks = communicator.world_size();
  const double pair[] = {own.high(), own.low()};
  const Tensor mine = backend.empty(DType::f64, {2}, Category::communication);
  const Tensor all = backend.empty(DType::f64, {ranks, 2}, Category::communication);
  backend.upload(mine, std::as_bytes(std::span(pair)));
  communicator.all_gather(all, mine, std::move(label)).wait();
  std::vector<double> pairs(static_cast<std::size_t>(2 * ranks));
  backend.download(std::as_writable_bytes(std::span(pairs)), all);

  WideSum sum;
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    sum += WideSum(pairs[i], pairs[i + 1]);
  }
  return sum;
}

}  // namespace ringworld
