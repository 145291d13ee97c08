"""An execution provider over any library that follows the array API standard.

https://data-apis.org/array-api says what that is. This package is public: plug-ins of others may
import it.
"""

from tenonnx_array.standard.provider import StandardDevice, StandardProvider

__all__ = ["StandardDevice", "StandardProvider"]
