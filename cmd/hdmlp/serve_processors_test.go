package main

import (
	"runtime"
	"testing"
)

// TestReadsAndTransformsShareOneProcessor: what transforms has no processor of Go to itself, in
// which case reads that wait in the kernel would follow one another.
func TestReadsAndTransformsShareOneProcessor(t *testing.T) {
	before := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(before)
	if n := shareProcessors(); n != 1 {
		t.Errorf("%d processors for what computes, want 1", n)
	}
	if n := runtime.GOMAXPROCS(0); n != 2 {
		t.Errorf("GOMAXPROCS is %d, want 2", n)
	}
}
