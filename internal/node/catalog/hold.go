package catalog

import "time"

// longestHold is for how long an opening may keep caches from being filled: by far enough for a
// dataset whose index is up to date.
const longestHold = time.Second

// holdFills keeps the caches of the datasets that are open with this key from being filled until
// release is called: a process waits for what is read to open one, and would queue behind them.
func (c *Catalog) holdFills(key string) (release func()) {
	c.mu.Lock()
	var open []*entry
	for id, e := range c.datasets {
		if id.key == key {
			open = append(open, e)
		}
	}
	c.mu.Unlock()
	var all []func()
	for _, e := range open {
		all = append(all, e.holdFills())
	}
	return func() {
		for _, release := range all {
			release()
		}
	}
}

// holdFills keeps the cache from being filled for longestHold, or until release is called.
func (e *entry) holdFills() (release func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cache == nil {
		return func() {}
	}
	return e.cache.HoldFills(longestHold)
}
