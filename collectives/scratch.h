// The memory that collectives work in: held from one call to the next.
//
// It grows when a call needs more than any before, and is kept until the communicator goes, as
// NCCL's buffers are. Once every call of a program has been made, nothing is allocated any more:
// what a device holds at most then depends on the program alone, and not on when the communication
// stream happens to run what.
//
// One call uses it at a time, and a call takes the same pieces whenever it is made.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/backend.h"

namespace ringworld {

class Scratch {
 public:
  // Holds `at_least` from the beginning.
  explicit Scratch(Backend& backend, Bytes at_least = Bytes(0));

  // One axis of undefined content, until it is given back or until reset. Throws OutOfDeviceMemory.
  Tensor take(DType dtype, std::int64_t elements);
  // The next piece of as many bytes may lie there.
  void give_back(const Tensor& x);
  // At the end of a call: all that was taken is free again, and what had to be allocated for it
  // becomes one block. Throws OutOfDeviceMemory when others have taken that memory meanwhile.
  void reset();

 private:
  Backend& backend_;
  Tensor block_;  // bytes
  std::int64_t used_ = 0;
  std::vector<Tensor> overflow_;  // what had no room in the block
  std::vector<Tensor> holes_;     // bytes that were given back
};

}  // namespace ringworld
