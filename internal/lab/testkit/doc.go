// Package testkit has what tests of several packages need: golden files (goldentest.go),
// goroutines that tests of clusters have left (leaktest.go), and processes that work in the
// background: to wait for them, to count their descriptors, and an address where they can listen
// (proctest.go).
package testkit
