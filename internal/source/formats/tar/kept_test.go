package tar

import (
	"archive/tar"
	"bytes"
	"fmt"
	"maps"
	"sync"
	"testing"

	"github.com/hdmlp/hdmlp/internal/source"
)

// keeper keeps what is found by the names of objects.
type keeper struct {
	mu    sync.Mutex // guards the following
	found map[string][]byte
}

func (k *keeper) Found(o *source.Object) []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.found[o.Name]
}

func (k *keeper) Keep(o *source.Object, data []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.found[o.Name] = bytes.Clone(data)
}

// TestWhatWasKeptOfArchives makes the same index, and nothing of them is read.
func TestWhatWasKeptOfArchives(t *testing.T) {
	o := &memory{files: map[string][]byte{}}
	var names []string
	for s := range 3 {
		var entries []entry
		for i := range 5 * s {
			entries = append(entries, entry{fmt.Sprintf("%d-%d.JPG", s, i), "image"},
				entry{fmt.Sprintf("%d-%d.cls", s, i), fmt.Sprint(i)})
		}
		entries = append(entries, entry{fmt.Sprintf("%d.seg.png", s), ""})
		name := fmt.Sprint(s)
		names = append(names, name)
		o.files[name] = archive(t, tar.FormatPAX, entries...)
	}
	k := &keeper{found: map[string][]byte{}}
	options := values()
	options.Kept = k
	first, err := Index(t.Context(), o, names, options)
	if err != nil {
		t.Fatal(err)
	}
	encoded := func(x *source.Index) string {
		var b bytes.Buffer
		if err := x.Encode(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	for name, damage := range map[string]func(k *keeper){
		"all":     func(*keeper) {},
		"two":     func(k *keeper) { delete(k.found, "1") },
		"damaged": func(k *keeper) { k.found["1"] = k.found["1"][:9] },
		"shorter": func(k *keeper) { k.found["0"] = k.found["2"] },
	} {
		t.Run(name, func(t *testing.T) {
			now := &keeper{found: maps.Clone(k.found)}
			damage(now)
			before := o.reads.Load()
			options.Kept = now
			second, err := Index(t.Context(), o, names, options)
			if err != nil {
				t.Fatal(err)
			}
			if encoded(first) != encoded(second) {
				t.Error("the index is another one")
			}
			if read := o.reads.Load() > before; read != (name != "all") {
				t.Errorf("archives are read: %t", read)
			}
		})
	}
}
