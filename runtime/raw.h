// The address of a tensor's elements. For backends and transports only: nothing above runtime/ may
// include this file (a test holds it to that), since the address may be another device's.
#pragma once

#include <cstddef>

#include "runtime/tensor.h"

namespace ringworld {

inline std::byte* raw_bytes(const Tensor& tensor) {
  return tensor.storage()->address() + (tensor.first_element() * size_of(tensor.dtype())).value;
}

// T is the C++ type of the tensor's dtype.
template <typename T>
T* raw(const Tensor& tensor) {
  return reinterpret_cast<T*>(raw_bytes(tensor));
}

}  // namespace ringworld
