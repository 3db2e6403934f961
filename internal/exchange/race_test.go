//go:build race

package exchange

const raceEnabled = true
