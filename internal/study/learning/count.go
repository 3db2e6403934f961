package learning

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// why are the reasons for which a file that was opened is not served, by how it was opened, and
// what to do.
var why = map[string][2]string{
	"os.open":   {"opened with os.open", "open it with open()"},
	"io.FileIO": {"opened with io.FileIO", "open it with open()"},
	"open in another thread": {
		"opened in another thread than that of the item", "open it in the item's own thread",
	},
	below: {
		"read by a library that opens files below Python",
		"read it with open(), PIL, numpy or cv2.imread, or make the class an ht.FileDataset",
	},
	"it was not opened for reading only": {"opened for writing", ""},
}

// left returns why a file is not served.
func (d *dataset) left(f file, readers int, n name) Left {
	if d.isShared(readers, n) {
		return Left{
			Why: fmt.Sprintf("read by %d of %d items", readers, len(d.looks)),
			Advice: fmt.Sprintf("read it once, in __init__: files= leaves a file that more than %d "+
				"items read to the file system", shared),
		}
	}
	if f.How == "" {
		return Left{Why: "named by no attribute of the dataset", Advice: "write a function for files="}
	}
	if text, ok := why[f.How]; ok {
		return Left{Why: text[0], Advice: text[1]}
	}
	return Left{Why: f.How}
}

// count adds up what is served, and what is left.
func (d *dataset) count(a *Answer, n name, covered map[pair]bool) {
	c := counter{answer: a, left: map[string]*Left{}, failed: map[string]*Failed{}}
	readers := d.readers()
	for _, index := range slices.Sorted(maps.Keys(d.looks)) {
		for _, l := range d.looks[index] {
			a.Looks++
			c.example(index, l)
			c.failure(index, l)
			for _, f := range l.Files {
				served := covered[pair{index, f.Path}] && f.How == ""
				c.file(f, served, d.left(f, readers[f.Path], n))
			}
			c.unseen(l)
		}
	}
	c.finish()
}

// counter adds up what is served of the items that were looked at, in the order of their indices.
type counter struct {
	answer *Answer
	left   map[string]*Left   // by why
	failed map[string]*Failed // by class
}

// file counts one that an item opened.
func (c *counter) file(f file, served bool, left Left) {
	c.answer.Files.All++
	c.answer.Content.All += f.Size
	if served {
		c.answer.Files.Served++
		c.answer.Content.Served += f.Size
		return
	}
	c.leave(left, 1, f.Size, []string{f.Path})
}

// unseen counts what an item read of no file that it opened.
func (c *counter) unseen(l look) {
	if l.Unseen > 0 {
		c.answer.Content.All += l.Unseen
		c.leave(unseen(l), 0, l.Unseen, l.Held)
		return
	}
	if len(l.Files) == 0 && len(l.Mapped) > 0 {
		c.leave(Left{
			Why:    "read from files that are mapped into memory, if at all: that cannot be seen",
			Advice: "HDMLP serves files that are opened, or ranges of files as ht.Records",
		}, 0, 0, l.Mapped)
	}
}

// leave counts what is not served.
func (c *counter) leave(l Left, files, bytes int64, paths []string) {
	if c.left[l.Why] == nil {
		if len(paths) > 0 {
			l.Example = paths[0]
		}
		c.left[l.Why] = &l
	}
	c.left[l.Why].Files += files
	c.left[l.Why].Bytes += bytes
}

// failure counts an item that raised an exception, once.
func (c *counter) failure(index int, l look) {
	if l.Failed == "" {
		return
	}
	f := c.failed[l.Failed]
	if f == nil {
		f = &Failed{Class: l.Failed, Index: index, last: -1}
		c.failed[l.Failed] = f
	}
	if f.last != index {
		f.Items++
		f.last = index
	}
}

// example takes the first item that opened files.
func (c *counter) example(index int, l look) {
	if len(l.Files) == 0 || c.answer.Example != nil {
		return
	}
	c.answer.Example = &Example{Index: index}
	for _, f := range l.Files {
		c.answer.Example.Paths = append(c.answer.Example.Paths, f.Path)
	}
}

// finish completes the answer.
func (c *counter) finish() {
	a := c.answer
	looks := float64(a.Looks)
	a.PerItem = PerItem{float64(a.Files.All) / looks, float64(a.Content.All) / looks}
	for _, l := range c.left {
		a.Left = append(a.Left, *l)
	}
	slices.SortFunc(a.Left, func(a, b Left) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Why, b.Why))
	})
	for _, class := range slices.Sorted(maps.Keys(c.failed)) {
		a.Failed = append(a.Failed, *c.failed[class])
	}
}

// unseen returns what is said of bytes that no file accounts for which an item opened.
func unseen(l look) Left {
	if len(l.Held) > 0 {
		return Left{
			Why: "read from files that were open before the item was made, or below Python",
			Advice: "open the file in __getitem__, or give HDMLP the ranges of the file as " +
				"ht.Records",
		}
	}
	return Left{
		Why:    "read below Python, or by other means than files: that cannot be seen",
		Advice: "read files with open(), PIL, numpy or cv2.imread",
	}
}
