//go:build race || invariants

package exchange

const raceEnabled = true
