package store

import (
	"fmt"

	"github.com/hdmlp/hdmlp/internal/lib/human"
)

// LimitError reports that a class cannot provide the capacity that was requested.
type LimitError struct {
	What  string // what was requested, and of which class: "a store in /nvme/cache"
	Need  int64  // bytes
	Limit int64  // bytes: the most that is available
	Hint  string // what a user can do; may be empty
}

func (e *LimitError) Error() string {
	need, limit := human.Format(e.Need), human.Format(e.Limit)
	if need == limit {
		need, limit = fmt.Sprintf("%d bytes", e.Need), fmt.Sprintf("%d", e.Limit)
	}
	text := fmt.Sprintf("%s: %s needed, at most %s available", e.What, need, limit)
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	return text
}
