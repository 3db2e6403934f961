package simulate

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// preload has node i load files, up to the class's capacity if bounded, and returns the loaded ones
// and when the last thread ended.
func (x *reference) preload(i, class int, files []int, bounded bool) (loaded []int, end float64) {
	c := x.job.Env.Classes[class]
	clock := make([]float64, c.Threads)
	used := 0.0
	for at, k := range files {
		s := x.size(k)
		if bounded && used+s > c.Capacity {
			break
		}
		used += s
		clock[at%c.Threads] += x.pfs(s, x.n) + x.write(s)
		x.nodes[i].p = append(x.nodes[i].p, clock[at%c.Threads])
		x.nodes[i].copies[k] = referenceCopy{class, 0}
		x.res.SourceTotal += s
		loaded = append(loaded, k)
	}
	return loaded, slices.Max(clock)
}

func span(from, to int) (all []int) {
	for k := from; k < to; k++ {
		all = append(all, k)
	}
	return all
}

func (x *reference) setUp() {
	each := x.f / x.n
	bucket := func(i int) []int { return span(i*each, (i+1)*each) }
	own := make([][]int, x.n)
	total := 0.0
	for k := range x.f {
		total += x.size(k)
	}
	next := 0
	for i, n := range x.nodes {
		switch x.policy {
		case "deepio_ordered", "deepio_opportunistic":
			if total/float64(x.n) > x.job.Env.Classes[1].Capacity {
				own[i], x.stall = x.preload(i, 1, span(next, x.f), true)
				next += len(own[i])
			} else if i == x.n-1 {
				own[i], x.stall = x.preload(i, 1, span(i*each, x.f), false)
			} else {
				own[i], x.stall = x.preload(i, 1, bucket(i), false)
			}
		case "lbann_preloading":
			_, x.stall = x.preload(i, 1, bucket(i), false)
		case "lbann_dynamic":
			c := x.job.Env.Classes[1]
			clock := make([]float64, c.Threads)
			for at, k := range n.r[:min(each, len(n.r)/x.job.Epochs)] {
				clock[at%c.Threads] += x.pfs(x.size(k), x.n) + x.write(x.size(k))
				n.p = append(n.p, clock[at%c.Threads])
				n.copies[k] = referenceCopy{1, clock[at%c.Threads]}
			}
		case "locality":
			_, x.stall = x.preload(i, 2, bucket(i), true)
		case "sharded":
			c := x.job.Env.Classes[2]
			var end float64
			own[i], end = x.preload(i, 2, bucket(i), true)
			used := 0.0
			for _, k := range own[i] {
				used += x.size(k)
			}
			clock := slices.Repeat([]float64{end}, c.Threads)
			for k := 0; k < i*each && used+x.size(k) <= c.Capacity; k++ {
				used += x.size(k)
				clock[k%c.Threads] += x.size(k)/min(x.job.Env.PeerBandwidth, x.rate(2)) +
					x.write(x.size(k))
				n.copies[k] = referenceCopy{2, 0}
			}
			x.stall = slices.Max(clock)
		case "frequency":
			n.order = x.frequencyOrder(n)
			for j := 1; j < len(x.job.Env.Classes); j++ {
				n.classes = append(n.classes,
					&referenceClass{clock: make([]float64, x.job.Env.Classes[j].Threads)})
			}
			x.fillClasses(n, 0)
		}
		if x.policy == "frequency" || x.policy == "staging" {
			x.fill(i, 0)
		}
	}
	rng := rand.New(rand.NewPCG(x.job.Seed, drawOfRewrite))
	pick := func(files []int) int { return files[rng.IntN(max(1, len(files)-1))] }
	for i, n := range x.nodes {
		for f := range n.r {
			switch {
			case x.policy == "sharded":
				n.r[f] = pick(own[i])
			case x.policy == "deepio_opportunistic" && (i == 0 || rng.IntN(x.n-1) == 0):
				n.r[f] = pick(own[i])
			case x.policy == "deepio_opportunistic":
				n.r[f] = pick(own[i-1])
			}
		}
	}
	for i := range x.nodes {
		if x.policy != "naive" && x.policy != "frequency" && x.policy != "staging" {
			x.fill(i, 0)
		}
	}
}

func (x *reference) frequencyOrder(n *referenceNode) []int {
	often, first := map[int]int{}, map[int]int{}
	for f, k := range n.r {
		if often[k]++; often[k] == 1 {
			first[k] = f
		}
	}
	order := span(0, x.f)
	slices.SortStableFunc(order, func(a, b int) int { return often[b] - often[a] })
	if x.byFrequency {
		return order
	}
	from := 0
	for _, c := range x.job.Env.Classes {
		to, size := from, 0.0
		for to < x.f && size <= c.Capacity {
			size += x.size(order[to])
			to++
		}
		slices.SortStableFunc(order[from:to], func(a, b int) int {
			if (often[a] > 0) != (often[b] > 0) {
				return often[b] - often[a]
			}
			return cmp.Compare(first[a], first[b])
		})
		from = to
	}
	return order
}

// fillClasses is one pass over the classes, from where the last pass ended.
func (x *reference) fillClasses(n *referenceNode, time float64) {
	for at, c := range n.classes {
		j := at + 1
		if x.cleanup { // threads take turns anew, and do not wait for the time
			c.reads, time = 0, 0
		}
		for n.listed < x.f-1 {
			k := n.order[n.listed]
			s := x.size(k)
			if c.used+s > x.job.Env.Classes[j].Capacity {
				break
			}
			thread := &c.clock[c.reads%len(c.clock)]
			begin := max(*thread, time)
			*thread = begin + (x.pfs(s, x.n) + x.write(s))
			n.p = append(n.p, begin)
			n.copies[k] = referenceCopy{j, *thread}
			c.used += s
			c.reads++
			n.listed++
		}
	}
}

// cleanUp drops the file of position f from the node's classes, if the node reads it nowhere after.
func (x *reference) cleanUp(n *referenceNode, f int) {
	k := n.r[f]
	if c, ok := n.copies[k]; ok && !slices.Contains(n.r[f+1:], k) {
		delete(n.copies, k)
		n.dropped[k] = c
		n.classes[c.class-1].used -= x.size(k)
	}
}
