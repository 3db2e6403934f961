// Package pagecache is a model of Linux's page cache: which files of a dataset it still has when
// they are read again. It is what a job has that caches nothing itself, and to which CoorDL
// compares MinIO (3.3.1, 4.1).
//
// Linux keeps two lists of pages, here of files, which are read completely. What is read for the
// first time goes to the inactive list, and from its end when memory is needed. What is read again
// while it is there goes to the active list, on which nothing is evicted; from its end, pages go
// back to the inactive list when that has become too short (mm/vmscan.c, inactive_is_low). A file
// that was evicted and comes back soon enough that it would have stayed if the inactive list were
// longer by the active one goes to the active list at once (mm/workingset.c, refault distance).
//
// Since Linux 4.7 the active list may be sqrt(10 GiB) times as long as the inactive one; before, it
// was at most as long (commit 59dc76b0d4df), which has fewer hits as soon as memory is larger than
// some GiB.
//
// With less memory than the dataset has and a new order in each epoch, that has fewer hits than the
// memory has files, and more than the plain LRU list that textbooks have: with memory for 65 % of
// 645 GB, 47 % since Linux 4.7, 35 % before, and 28 %. It is deterministic: time plays no part.
//
// Left out: other users of memory, writes, cgroups, pages that are read ahead and not used, and the
// multi-generational LRU, which distributions have switched on since Linux 6.1.
package pagecache

import "math"

// Rule determines what is evicted.
type Rule int

const (
	// TwoLists is that of Linux: an inactive and an active list, and refault distances.
	TwoLists Rule = iota
	// EvenLists is that of Linux 3.15 to 4.6: the same, with an active list that is at most as long
	// as the inactive one.
	EvenLists
	// LRU evicts what was not read for the longest time.
	LRU
)

// Cache is the page cache of one node. Its methods are not safe for concurrent use.
type Cache struct {
	rule     Rule
	capacity int64
	size     func(id int) int64
	ratio    int64 // how many times as long as the inactive list the active one may be
	files    []file
	inactive list
	active   list
	age      int64 // bytes that were evicted, or moved to the active list
}

// file is what is known of a file.
type file struct {
	newer, older int32 // its neighbours in its list
	in           where
	referenced   bool  // it was read since it came to its list, or before
	evicted      int64 // Cache.age when it was evicted; 0: it never was
}

type where uint8

const (
	nowhere where = iota
	inactiveList
	activeList
)

// none is the neighbour at the end of a list.
const none = -1

// list is a list of files, and how many bytes they have.
type list struct {
	newest, oldest int32
	bytes          int64
}

// New returns an empty cache of so many bytes for files that are numbered from 0. size returns the
// bytes of a file.
func New(rule Rule, capacity int64, files int, size func(id int) int64) *Cache {
	c := &Cache{
		rule: rule, capacity: capacity, size: size, ratio: 1, files: make([]file, files),
		inactive: list{newest: none, oldest: none}, active: list{newest: none, oldest: none},
	}
	if gigabytes := capacity >> 30; rule == TwoLists && gigabytes > 0 {
		c.ratio = int64(math.Sqrt(float64(10 * gigabytes)))
	}
	return c
}

// Read reads a file, and reports whether the cache had it.
func (c *Cache) Read(id int32) (hit bool) {
	f := &c.files[id]
	size := c.size(int(id))
	switch {
	case f.in == nowhere:
		c.miss(id, f, size)
		return false
	case c.rule == LRU:
		c.move(id, &c.inactive, inactiveList)
	case f.in == inactiveList && f.referenced: // mark_page_accessed
		c.move(id, &c.active, activeList)
		f.referenced = false
		c.age += size
	default:
		f.referenced = true
	}
	return true
}

// miss brings a file into the cache. One that is larger than the cache does not stay.
func (c *Cache) miss(id int32, f *file, size int64) {
	if size > c.capacity {
		return
	}
	for c.inactive.bytes+c.active.bytes+size > c.capacity {
		c.evict()
	}
	f.referenced = true
	if c.rule != LRU && f.evicted > 0 && c.age-f.evicted <= c.active.bytes {
		c.add(id, &c.active, activeList)
		c.age += size
		return
	}
	c.add(id, &c.inactive, inactiveList)
}

// evict evicts the oldest inactive file, after filling the inactive list up if it is too short.
func (c *Cache) evict() {
	for c.inactive.oldest == none || c.inactive.bytes*c.ratio < c.active.bytes {
		c.move(c.active.oldest, &c.inactive, inactiveList)
	}
	id := c.inactive.oldest
	c.remove(id)
	c.age += c.size(int(id))
	c.files[id].evicted = c.age
}

// move makes a file the newest of a list.
func (c *Cache) move(id int32, to *list, in where) {
	c.remove(id)
	c.add(id, to, in)
}

// add makes a file that is in no list the newest of one.
func (c *Cache) add(id int32, to *list, in where) {
	f := &c.files[id]
	f.in = in
	f.newer = none
	f.older = to.newest
	if to.newest != none {
		c.files[to.newest].newer = id
	} else {
		to.oldest = id
	}
	to.newest = id
	to.bytes += c.size(int(id))
}

// remove removes a file from its list.
func (c *Cache) remove(id int32) {
	f, from := &c.files[id], &c.inactive
	if f.in == activeList {
		from = &c.active
	}
	if f.newer != none {
		c.files[f.newer].older = f.older
	} else {
		from.newest = f.older
	}
	if f.older != none {
		c.files[f.older].newer = f.newer
	} else {
		from.oldest = f.newer
	}
	from.bytes -= c.size(int(id))
	f.in = nowhere
}
