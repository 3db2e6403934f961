package model

// Rising returns the throughput that does not fall with the number of clients and is nearest to the
// curve in the sense of least squares: neighbours that fall are replaced by their mean.
func (c Curve) Rising() Curve {
	type pool struct {
		sum float64
		n   int
	}
	var pools []pool
	for _, p := range c {
		pools = append(pools, pool{p.MBps, 1})
		for k := len(pools) - 1; k > 0 &&
			pools[k-1].sum/float64(pools[k-1].n) > pools[k].sum/float64(pools[k].n); k-- {
			pools[k-1] = pool{pools[k-1].sum + pools[k].sum, pools[k-1].n + pools[k].n}
			pools = pools[:k]
		}
	}
	rising := make(Curve, 0, len(c))
	for _, p := range pools {
		for range p.n {
			rising = append(rising, Point{c[len(rising)].Clients, p.sum / float64(p.n)})
		}
	}
	return rising
}
