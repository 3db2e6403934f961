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
	b.keepAsRead(b.from(in.From))
	b.keepLaterAlone()
	p := b.finishInOrder(m.Name(), false)
	p.CacheFirst = true
	return p, in.ended()
}

// keepLater gives the room that is left to samples that no epoch reads which was given so far, by ID: a later one may. Which node reads them
// then is not known, so that each goes to the node that has most room.
func (b *builder) keepLater() {
	if !isGiven(b.in.Stream) {
		return
	}
	for k := 0; k < len(b.head) && b.open.most() >= b.least; k++ {
		if size := b.in.Size(k); b.head[k] < 0 && size <= b.open.most() {
			b.keep(b.open.node(), noClass, int32(k), never)
		}
	}
}

// keepLaterAlone is keepLater where no node asks another: each may keep any of them.
func (b *builder) keepLaterAlone() {
	if !isGiven(b.in.Stream) {
		return
	}
	for n := range b.in.Nodes {
		for k := 0; k < len(b.head) && !b.fullUp(n); k++ {
			if size := b.in.Size(k); size <= b.open.room(n) && !b.has(n, int32(k)) {
				b.keep(n, noClass, int32(k), never)
			}
		}
	}
}

// keepAsRead gives nodes what they read in the lead, in that order, until they are full.
func (b *builder) keepAsRead(lead Lead) {
	b.expect(lead.Steps * len(b.full.position))
	b.walk(lead, func(epoch int, ids []int32, nodes []uint16) bool {
		for i, k := range ids {
			size := b.in.Size(int(k))
			if nodes != nil {
				b.keepRead(int32(nodes[i]), k, size, epoch)
				continue
			}
			for _, n := range b.nodeOf {
				b.keepRead(n, k, size, epoch)
			}
		}
		return b.open.most() >= b.least
	})
}

// from is everything from an epoch to the horizon.
func (b *builder) from(epoch int) Lead {
	return Lead{Epoch: epoch, Steps: b.in.Stream.Steps() * (b.to - epoch)}
}

// keepRead gives the node what it reads in the epoch, if it has room for it and has not got it.
func (b *builder) keepRead(node, k int32, size int64, epoch int) {
	if size <= b.open.room(int(node)) && !b.has(int(node), k) {
		b.keep(int(node), noClass, k, int32(epoch-b.in.From))
	}
}
