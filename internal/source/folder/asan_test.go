//go:build asan || race

package folder

const sanitized = true
