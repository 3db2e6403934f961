package script

import "time"

// garble has a few bits flip of what nodes send each other, so few that connections last, and most
// are in samples: nodes read much from each other and little else is sent.
func (r *chance) garble(s *Script) {
	if s.Shuffle == "given" || r.IntN(30) > 0 {
		return
	}
	l := Launch{Nodes: r.between(2, 4), Ranks: pick(r, 1, 1, 2)}
	c := Script{
		Seed: s.Seed, Samples: r.between(40, 60), Largest: 5000, Epochs: r.between(4, 10),
		Shuffle: s.Shuffle, Scheme: pick(r, "strided", "uniform"), Tail: pick(r, "pad", "keep"),
		OnError: "raise", SourceSlow: true, Staging: 256 << 10, Prefetch: pick(r, 0, 1, 2),
		Timeout: Duration(5 * time.Second),
		Step:    Duration(r.between(0, 50)) * Duration(time.Millisecond),
		Apart:   r.percent(20), Again: pick(r, 0, 1, 2), Launches: []Launch{l},
	}
	c.Batch = r.between(l.WorldSize(), c.Samples/4)
	c.Memory = c.Bytes()/l.Nodes + 4*c.Largest
	for node := range l.Nodes {
		for to := range l.Nodes - 1 {
			c.Events = append(c.Events, Event{
				Kind: Flip, At: Duration(r.between(0, 100)) * Duration(time.Millisecond),
				For: r.about(time.Second, 30*time.Second), Node: node, To: to,
				Amount: r.between(10, 100), Of: 10_000,
			})
		}
	}
	if c.valid() {
		*s = c
	}
}
