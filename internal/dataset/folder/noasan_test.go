//go:build !asan

package folder

// sanitized: the tests run under the address sanitizer, for whose sake the compiler puts more on
// the heap, and which keeps freed memory for a while.
const sanitized = false
