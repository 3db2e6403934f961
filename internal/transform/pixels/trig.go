package pixels

import "math"

// Python computes matrices with the C library's sin, cos and tan, and sampling at points halfway
// between pixels shows the last bit. With cgo, SinCos and Tan are the C library's, too. Otherwise
// they compute in pairs of float64: the results are correctly rounded, as the C library's are for
// all but about one argument in 500.

// pair is the sum of two float64, of which lo is at most half a unit in the last place of hi.
type pair struct{ hi, lo float64 }

func sum(a, b float64) pair {
	hi := a + b
	v := hi - a
	return pair{hi, (a - (hi - v)) + (b - v)}
}

func product(a, b float64) pair {
	hi := a * b
	return pair{hi, math.FMA(a, b, -hi)}
}

func (p pair) add(q pair) pair {
	s, t := sum(p.hi, q.hi), sum(p.lo, q.lo)
	s = sum(s.hi, s.lo+t.hi)
	return sum(s.hi, s.lo+t.lo)
}

func (p pair) mul(q pair) pair {
	s := product(p.hi, q.hi)
	return sum(s.hi, s.lo+(float64(p.hi*q.lo)+float64(p.lo*q.hi)))
}

func (p pair) div(d float64) pair {
	q := p.hi / d
	s := product(q, d)
	return sum(q, ((p.hi-s.hi)-s.lo+p.lo)/d)
}

// sinCosGo returns the sine and cosine of x, for |x| below 1e6.
func sinCosGo(x float64) (sin, cos pair) {
	if x == 0 || math.IsNaN(x) || math.Abs(x) >= 1e6 {
		s, c := math.Sincos(x)
		return pair{s, 0}, pair{c, 0}
	}
	// pi/2 in three parts.
	const (
		first  = 0x1.921fb54442d18p+0
		second = 0x1.1a62633145c07p-54
		third  = -0x1.f1976b7ed8fbcp-110
	)
	quarter := math.Round(x / first)
	r := pair{x, 0}.add(product(-quarter, first)).add(product(-quarter, second))
	r = r.add(pair{-quarter * third, 0})

	square := r.mul(r)
	s, c := r, pair{1, 0}
	term, even := r, pair{1, 0}
	for n := 1.0; n < 28; n += 2 {
		even = even.mul(square).div(-n * (n + 1))
		c = c.add(even)
		term = term.mul(square).div(-(n + 1) * (n + 2))
		s = s.add(term)
	}
	switch int(quarter) & 3 {
	case 0:
		return s, c
	case 1:
		return c, s.negative()
	case 2:
		return s.negative(), c.negative()
	}
	return c.negative(), s
}

func (p pair) negative() pair { return pair{-p.hi, -p.lo} }

// tanGo returns the tangent of x, for |x| below 1e6.
func tanGo(x float64) float64 {
	if x == 0 { // which keeps its sign
		return x
	}
	sin, cos := sinCosGo(x)
	q := sin.hi / cos.hi
	rest := sin.add(cos.mul(pair{-q, 0}))
	return q + rest.hi/cos.hi
}
