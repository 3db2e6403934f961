// Package envfile is the file in which the numbers of the performance model are stored: what an
// earlier run or hdmlp probe measured of a machine (docs/FORMATS.md). It has only what was
// measured, and nothing in place of what is not known. A scenario of the simulator may take it in
// place of the same keys of its [environment]. Among them are compute and preprocess, which are
// those of a training script; jobs do not begin with them (catalog.StartingNode).
//
// It also reads such numbers as people write them in scenarios, configurations and environment
// files (quantity.go): plain numbers of MB, MB/s or seconds, or strings with a unit, such as
// "64 MiB", "40 Gbit/s" and "5ms". All three take the same. What is wrong is a Fault, which names
// the key, the value and what is allowed.
//
// Its functions are pure; Decode reads untrusted input.
package envfile
