package pool

// taskHeap is a heap of tasks by the step that needs them, then by arrival. It does not use
// container/heap, which allocates for each task.
type taskHeap []Task

func (h taskHeap) less(i, j int) bool {
	if h[i].Order != h[j].Order {
		return h[i].Order < h[j].Order
	}
	return h[i].seq < h[j].seq
}

func (h *taskHeap) push(t Task) {
	*h = append(*h, t)
	s := *h
	for i := len(s) - 1; i > 0; {
		parent := (i - 1) / 2
		if !s.less(i, parent) {
			return
		}
		s[i], s[parent] = s[parent], s[i]
		i = parent
	}
}

func (h *taskHeap) pop() Task {
	s := *h
	first, last := s[0], len(s)-1
	s[0], s[last] = s[last], Task{} // do not retain the consumer
	s = s[:last]
	*h = s
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return first
		}
		if child+1 < last && s.less(child+1, child) {
			child++
		}
		if !s.less(child, i) {
			return first
		}
		s[i], s[child] = s[child], s[i]
		i = child
	}
}
