// Converts exceptions of all kinds to Error.
// Called through caught.hpp.
#include "core/caught.hpp"

#include <exception>
#include <new>

#include "core/system_call.hpp"

namespace tilewire {

Error caught_error() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return {ErrorKind::unsupported, SystemCall{-1, ENOMEM}.why()};
  } catch (const std::exception& error) {
    return {ErrorKind::internal, error.what()};
  } catch (...) {
    return {ErrorKind::internal, "an exception that is not a std::exception"};
  }
}

}  // namespace tilewire
