//go:build !asan && !race

package folder

// sanitized is true if the tests run under the address sanitizer, with which the compiler allocates
// more on the heap, and freed memory is kept for a while, or under the race detector, which empties
// pools now and then.
const sanitized = false
