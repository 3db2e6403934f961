package report

// MostPoints is how many points a Series has at most. When a job has more steps, each point covers
// twice as many as before, so that a report stays small however long the job runs.
const MostPoints = 128

// Series is how a job went over its steps: on a node, or on all nodes. It begins with the first
// step of a multiple of Width that a rank took.
type Series struct {
	Width  int     `json:"steps_per_point"` // a power of 2
	First  int     `json:"first_step"`      // of the first point, counted through all epochs
	Points []Point `json:"points"`
}

// Point is what happened in Series.Width steps. A point without batches is one of steps that no
// rank took here.
type Point struct {
	Batches int64 `json:"batches"`
	// Longest is the longest time for which next() was blocked in one of the steps, of any rank
	// (thesis, figure 5.14), and Stall the time of all ranks, in seconds.
	Longest float64 `json:"longest_stall_s"`
	Stall   float64 `json:"stall_s"`
	// Bytes are those delivered, by the tier that they came from.
	Bytes map[string]int64 `json:"bytes"`
	// At is when the last of the batches was taken, since the job was opened, in seconds.
	At float64 `json:"at_s"`
	Usage
}

// Usage is what a node's daemon has used since the job was opened; in a report over several nodes,
// the sum over these. It is measured once a second.
type Usage struct {
	CPU    float64          `json:"cpu_s"`        // processor time, in seconds
	Memory int64            `json:"memory_bytes"` // resident now
	Read   map[string]int64 `json:"read_bytes"`   // by tier, by all jobs of the dataset
}

// plus returns the sum of two nodes' usage.
func (u Usage) plus(o *Usage) Usage {
	sum := Usage{u.CPU + o.CPU, u.Memory + o.Memory, map[string]int64{}}
	for _, one := range []map[string]int64{u.Read, o.Read} {
		for tier, bytes := range one {
			sum.Read[tier] += bytes
		}
	}
	return sum
}

// merge adds another point of the same steps of the same node, or of the next steps.
func (p *Point) merge(o *Point) {
	p.Batches += o.Batches
	p.Longest = max(p.Longest, o.Longest)
	p.Stall += o.Stall
	for tier, bytes := range o.Bytes {
		if p.Bytes == nil {
			p.Bytes = map[string]int64{}
		}
		p.Bytes[tier] += bytes
	}
	if o.At >= p.At {
		p.At, p.Usage = o.At, o.Usage
	}
}

// Add adds what happened in a step, counted through all epochs.
func (s *Series) Add(step int, what *Point) {
	switch {
	case s.Width == 0:
		s.Width, s.First = 1, step
	case step < s.First:
		s.reach(step)
	}
	for (step-s.First)/s.Width >= MostPoints {
		s.double()
	}
	at := (step - s.First) / s.Width
	for at >= len(s.Points) {
		s.Points = append(s.Points, Point{})
	}
	s.Points[at].merge(what)
}

// reach has the series begin at a step before its first one.
func (s *Series) reach(step int) {
	for (s.First-step-1)/s.Width+1+len(s.Points) > MostPoints {
		s.double()
	}
	more := make([]Point, (s.First-step+s.Width-1)/s.Width)
	s.First -= len(more) * s.Width
	s.Points = append(more, s.Points...)
}

// double has each point cover twice as many steps.
func (s *Series) double() {
	width := 2 * s.Width
	first := s.First - s.First%width
	var points []Point
	for i := range s.Points {
		at := (s.First + i*s.Width - first) / width
		for at >= len(points) {
			points = append(points, Point{})
		}
		points[at].merge(&s.Points[i])
	}
	s.Width, s.First = width, first
	s.Points = points
}

// Valid reports whether the series, which may come from a file or another node, is one, or nil.
func (s *Series) Valid() bool {
	return s == nil || s.Width > 0 && s.Width&(s.Width-1) == 0 && s.First >= 0 &&
		s.First%s.Width == 0 && s.First < 1<<62 && len(s.Points) <= MostPoints
}

// Copy returns a copy; nil if there are no points.
func (s *Series) Copy() *Series {
	if len(s.Points) == 0 {
		return nil
	}
	c := &Series{s.Width, s.First, make([]Point, len(s.Points))}
	for i := range s.Points {
		c.Points[i].merge(&s.Points[i])
	}
	return c
}

// over returns the series of all nodes: the longest stall of any of them, the sums of stalls and
// bytes, the time of the last, and the sums of what their daemons use.
func over(nodes []*Series) *Series {
	all := &Series{}
	copies := make([]Series, 0, len(nodes))
	for _, s := range nodes {
		if s != nil && len(s.Points) > 0 && s.Valid() {
			copies = append(copies, *s.Copy())
			all.Width = max(all.Width, s.Width)
		}
	}
	if len(copies) == 0 {
		return nil
	}
	first, last := 0, 0
	for i := range copies {
		s := &copies[i]
		for s.Width < all.Width {
			s.double()
		}
		if i == 0 || s.First < first {
			first = s.First
		}
		last = max(last, s.First+len(s.Points)*s.Width)
	}
	all.First = first
	all.Points = make([]Point, (last-first)/all.Width)
	for i := range copies {
		s := &copies[i]
		for j := range s.Points {
			p, q := &all.Points[(s.First+j*s.Width-all.First)/all.Width], &s.Points[j]
			sum := p.plus(&q.Usage)
			p.merge(q)
			p.Usage = sum
		}
	}
	for len(all.Points) > MostPoints {
		all.double()
	}
	return all
}
