package placement

// Naive reads from the source when asked: no prefetching, no caching (thesis 4.1.4, BasePolicy).
type Naive struct{}

// Name is "naive".
func (Naive) Name() string { return "naive" }

// Plan plans no copies, and no staging ahead.
func (n Naive) Plan(in Input) (*Plan, error) { return nothing(n.Name(), false, in) }

// Staging fills the staging buffer ahead of time from the source, and caches nothing: double
// buffering, tf.data, torch's DataLoader (thesis 4.1.4, StagingPoolPrefetcher).
type Staging struct{}

// Name is "staging".
func (Staging) Name() string { return "staging" }

// Plan plans no copies.
func (s Staging) Plan(in Input) (*Plan, error) { return nothing(s.Name(), true, in) }

// nothing is a plan without copies.
func nothing(policy string, prefetch bool, in Input) (*Plan, error) {
	if _, _, err := in.check(); err != nil {
		return nil, err
	}
	p := &Plan{Policy: policy, Prefetch: prefetch, Nodes: make([]NodePlan, len(in.Nodes))}
	for n := range p.Nodes {
		p.Nodes[n].Classes = make([][]int32, len(in.Nodes[n].Capacity))
	}
	return p, nil
}

// MinIO keeps, on each node for itself, the first samples that fit, in the order in which
// the node reads them, and never evicts (CoorDL 4.1).
type MinIO struct{}

// Name is "minio".
func (MinIO) Name() string { return "minio" }

// Plan walks the epochs until every node is full.
func (m MinIO) Plan(in Input) (*Plan, error) {
	b, err := newBuilder(&in)
	if err != nil {
		return nil, err
	}
	b.keepAsRead(in.From)
	p := b.finish(m.Name(), false, false)
	p.CacheFirst = true
	return p, nil
}

// keepAsRead gives nodes what they read from epoch `from` on, in that order, until they are full.
func (b *builder) keepAsRead(from int) {
	full, open := make([]bool, len(b.in.Nodes)), 0
	for n := range full {
		if full[n] = b.full(n); !full[n] {
			open++
		}
	}
	for e := from; e < b.to && open > 0; e++ {
		for rank, k := range b.in.Stream.Epoch(e).Reads() {
			n := int(b.nodeOf[rank])
			if full[n] || b.has(n, k) || !b.keep(n, maxClasses, k) {
				continue
			}
			if full[n] = b.full(n); full[n] {
				if open--; open == 0 {
					break
				}
			}
		}
	}
}
