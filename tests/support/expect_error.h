// Expecting an error that tells the user what they need to know.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace ringworld {

// body() throws E, and the message holds every one of `facts`. Returns the message.
template <typename E, typename Body>
std::string expect_error(Body body, std::initializer_list<std::string_view> facts) {
  try {
    body();
  } catch (const E& error) {
    const std::string message = error.what();
    for (const std::string_view fact : facts) {
      EXPECT_NE(message.find(fact), std::string::npos) << "no \"" << fact << "\" in: " << message;
    }
    return message;
  }
  ADD_FAILURE() << "no error was thrown";
  return {};
}

}  // namespace ringworld
