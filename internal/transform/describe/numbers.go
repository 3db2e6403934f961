package describe

import (
	"encoding/json"
	"math"
)

// PerPlace returns an argument that is a number or a list of any length.
func (a *Arguments) PerPlace(name string) []float32 {
	var list []float64
	var one float64
	raw, given := a.Given[name]
	switch {
	case !given:
		a.Fault(name, "it must be a number or a list of numbers")
	case json.Unmarshal(raw, &one) == nil && string(raw) != "null":
		list = []float64{one}
	case json.Unmarshal(raw, &list) != nil || len(list) == 0 || HasNull(raw):
		a.Fault(name, "it must be a number or a list of numbers")
		return nil
	}
	out := make([]float32, len(list))
	for i, v := range list {
		out[i] = float32(v)
	}
	return out
}

// Logs returns an argument that has the logarithms of two numbers as torch computes them, or
// computes them.
func (a *Arguments) Logs(name string, numbers [2]float64) (logs [2]float32) {
	if !a.None(name) {
		from, to := a.Pair(name, -20, 20)
		return [2]float32{float32(from), float32(to)}
	}
	for i, n := range numbers {
		logs[i] = float32(math.Log(float64(float32(n))))
	}
	return logs
}

// Float32s returns an argument that is a number, or a list of one or three.
func (a *Arguments) Float32s(name string) []float32 {
	var out []float32
	for _, v := range a.Numbers(name, -1e30, 1e30, "a number for each of 1 or 3 channels", 1, 3) {
		out = append(out, float32(v))
	}
	return out
}

// Spread returns list, or its only number n times.
func Spread(list []float32, n int) []float32 {
	for len(list) > 0 && len(list) < n {
		list = append(list[:len(list):len(list)], list[0])
	}
	return list
}
