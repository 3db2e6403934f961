package pool

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestTasksRunInTheOrderOfNeed checks that tasks are ordered by the step that needs them, and
// within a step by arrival.
func TestTasksRunInTheOrderOfNeed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h taskHeap
		var want []Task
		sorted := func() {
			slices.SortFunc(want, func(a, b Task) int {
				return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.seq, b.seq))
			})
		}
		for seq := range rapid.IntRange(0, 60).Draw(t, "tasks") {
			if len(want) > 0 && rapid.IntRange(0, 3).Draw(t, "pop") == 0 {
				if sorted(); h.pop() != want[0] {
					t.Fatal("pop returned another task")
				}
				want = want[1:]
				if h[:len(h)+1][len(h)] != (Task{}) {
					t.Fatal("the heap retains a popped task")
				}
				continue
			}
			task := Task{
				Order: int64(rapid.IntRange(0, 9).Draw(t, "order")),
				Index: seq,
				seq:   int64(seq),
			}
			h.push(task)
			want = append(want, task)
		}
		sorted()
		for _, task := range want {
			if got := h.pop(); got != task {
				t.Fatalf("got %+v, want %+v", got, task)
			}
		}
		if len(h) != 0 {
			t.Fatalf("%d tasks are left", len(h))
		}
	})
}
