package placement

// Partitioned is CoorDL's partitioned cache (4.2): each node keeps what it reads in the first epoch, as far as it fits,
// and never evicts; what it has not got it reads from the node that has. Where room is left, nodes keep further
// copies of what they read later.
type Partitioned struct{}

// Name is "partitioned".
func (Partitioned) Name() string { return "partitioned" }

// Plan walks the epochs until every node is full.
func (p Partitioned) Plan(in Input) (*Plan, error) {
	b, err := newBuilder(&in)
	if err != nil {
		return nil, err
	}
	b.ownHeld()
	b.keepFirstEpoch(noClass)
	b.keepAsRead(b.from(in.From + 1))
	b.keepLater()
	plan := b.finishInOrder(p.Name(), true)
	plan.OnRead, plan.CacheFirst = true, true
	return plan, in.ended()
}
