package model

import "math"

// Imbalance returns the mean share of a global batch that nodes have to get from others if
// each owns an equal part of the dataset, and trains on as many samples as every other. It is the
// sum of the nodes' deficits over the size of the batch, as in figure 6 of
// Yang and Cong's paper (Accelerating Data Loading in Deep Neural Network Training), where it is
// beta.
//
// A batch is drawn without replacement, so that a node owns X of its samples, of a hypergeometric
// distribution, and lacks max(0, B/p - X). The mean of that is half the mean deviation of X, which
// has a closed form (derived; the paper simulates it). In the limit of large datasets it is
// 1/sqrt(2 pi L) for L samples of each node: 7.0, 5.0 and 3.5 % for 32, 64 and 128.
func Imbalance(samples, nodes, batch int) float64 {
	if nodes < 2 || batch < 1 || samples < nodes {
		return 0
	}
	n, drawn := float64(samples), float64(min(batch, samples))
	own := math.Round(n / float64(nodes))
	m := math.Floor(drawn*own/n) + 1 // the least X above the mean
	if m > min(own, drawn) {
		return 0
	}
	deficit := m * (n - own - drawn + m) / n * math.Exp(logChoose(own, m)+
		logChoose(n-own, drawn-m)-logChoose(n, drawn))
	return deficit * float64(nodes) / drawn
}

// logChoose returns the logarithm of the number of ways to choose k of n.
func logChoose(n, k float64) float64 {
	a, _ := math.Lgamma(n + 1)
	b, _ := math.Lgamma(k + 1)
	c, _ := math.Lgamma(n - k + 1)
	return a - b - c
}
