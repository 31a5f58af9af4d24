# `cmake --install`: library, headers and the package config that find_package(tilewire) reads.
include(CMakePackageConfigHelpers)

set(TILEWIRE_CONFIG_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/tilewire)
get_target_property(TILEWIRE_LIBRARY_TYPE tilewire TYPE)

install(TARGETS tilewire EXPORT tilewireTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS tilewire_c EXPORT tilewire_cTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/tilewire DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# Projects may also link what is built here, without an installation (TILEWIRE_PREBUILT).
export(EXPORT tilewireTargets NAMESPACE tilewire:: FILE ${PROJECT_BINARY_DIR}/tilewireTargets.cmake)
install(EXPORT tilewireTargets NAMESPACE tilewire:: DESTINATION ${TILEWIRE_CONFIG_DIR})
install(EXPORT tilewire_cTargets NAMESPACE tilewire:: DESTINATION ${TILEWIRE_CONFIG_DIR})

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/tilewireConfig.cmake.in
  ${PROJECT_BINARY_DIR}/tilewireConfig.cmake INSTALL_DESTINATION ${TILEWIRE_CONFIG_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tilewireConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tilewireConfig.cmake ${PROJECT_BINARY_DIR}/tilewireConfigVersion.cmake
  DESTINATION ${TILEWIRE_CONFIG_DIR})
