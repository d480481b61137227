#include "training/broadcast_text.h"

namespace ringworld {

std::string broadcast_text(Communicator& communicator, const std::string& text, int root) {
  const auto length = communicator.all_reduce_value(
      communicator.rank() == root ? static_cast<std::int64_t>(text.size()) : 0, ReduceOp::max,
      "error length");
  Backend& backend = communicator.backend();
  const Tensor characters = backend.zeros(DType::i8, {length}, Category::communication);
  if (communicator.rank() == root) {
    backend.upload(characters, std::as_bytes(std::span(text)));
  }
  communicator.broadcast(characters, root, "error").wait();
  std::string received(static_cast<std::size_t>(length), '\0');
  backend.download(std::as_writable_bytes(std::span(received)), characters);
  return received;
}

}  // namespace ringworld
