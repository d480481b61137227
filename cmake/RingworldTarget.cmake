# ringworld_library(NAME SOURCES ... [PUBLIC libs...] [PRIVATE libs...]): a floor of the house, or a
# part of one, with the project's warnings and include path.
function(ringworld_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE} ringworld_options)
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
endfunction()

add_library(ringworld_options INTERFACE)
target_compile_options(ringworld_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wimplicit-fallthrough
  -Werror)
if(RINGWORLD_SANITIZE)
  target_compile_options(ringworld_options INTERFACE
    -fsanitize=${RINGWORLD_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(ringworld_options INTERFACE -fsanitize=${RINGWORLD_SANITIZE})
endif()
