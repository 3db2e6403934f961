//go:build !race

package transform

const raceDetector = false
