package replay

// submit queues a task of a batch: at once, or once the process asks for the batch (bringLater), or
// when the batch's worker comes to it (line), as stage.Stager does.
func (n *node) submit(t task) {
	plan, b := n.c.job.Plan, t.batch
	switch {
	case plan.Demand && plan.OwnerOf(int(t.sample)) < 0:
		b.later = append(b.later, t)
	case plan.Window != nil:
		b.chain = append(b.chain, t)
	default:
		n.tasks.push(t)
	}
}

// bringLater queues the samples that are read on demand: the process is blocked for the batch.
func (b *batch) bringLater() {
	for _, t := range b.later {
		b.rank.node.tasks.push(t)
	}
	if b.later != nil {
		b.later = nil
		b.rank.node.dispatch()
	}
}

// line has the batch brought by the next of torch's workers in turn, after that worker's last
// batch.
func (b *batch) line() {
	if len(b.chain) == 0 {
		return
	}
	r := b.rank
	if r.last == nil {
		r.last = make([]*batch, r.c.job.Plan.Window.Workers)
	}
	before := r.last[r.turn]
	r.last[r.turn] = b
	r.turn = (r.turn + 1) % len(r.last)
	if before != nil && before.left > 0 {
		before.follows = b
		return
	}
	b.next()
}

// next queues the next sample of a worker's batch, if there is one.
func (b *batch) next() {
	if len(b.chain) > 0 {
		b.rank.node.tasks.push(b.chain[0])
		b.chain = b.chain[1:]
	}
}

// ended has the worker of a batch, all of whose samples have arrived, bring its next one.
func (b *batch) ended() {
	if next := b.follows; next != nil {
		b.follows = nil
		next.next()
	}
}

// mostAhead returns how many batches may be staged and not yet taken (stage.Stager.hold).
func (r *rank) mostAhead() int {
	if w := r.c.job.Plan.Window; w != nil {
		return min(w.Batches(), r.node.limits.Ahead)
	}
	return min(r.node.first(r)+2*r.taken, r.node.limits.Ahead)
}
