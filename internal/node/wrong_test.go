package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hdmlp/hdmlp/internal/node/request"
)

// stored is what is stored of a node by which its disk, which holds two thirds of the dataset,
// gives less than a sample per second, and the source 20 samples per second to two nodes.
const stored = `[environment]
nodes = 2
sample_size = 0.001
network = 0.1
source = { 2 = 0.02 }
source_latency = 0.0
[[environment.storage_class]]
name = "staging"
capacity = 0.065
threads = 2
read = 1000000.0
write = 1000000.0
[[environment.storage_class]]
name = "memory"
capacity = 0.007
threads = 4
read = 1000.0
write = 1000.0
[[environment.storage_class]]
name = "file"
path = %q
capacity = 0.027
threads = 4
read = 0.0007
write = 1.0
`

// TestWrongRateOfADiskIsHarmless: two nodes begin with a stored rate of their disks that is wrong
// by a factor of thousands. They fill the disks all the same, and read the source no more.
func TestWrongRateOfADiskIsHarmless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newVirtualNodes(t, 2, false)
		source := make(chan struct{}, 1) // holds a token while it is read
		configs := make([]string, len(c.list))
		for i, node := range c.list {
			node.options.Strategy.AtOnce = time.Hour
			dir := t.TempDir()
			configs[i] = filepath.Join(dir, "hdmlp.toml")
			text := fmt.Sprintf("[[storage_class]]\nkind = \"memory\"\ncapacity = \"7000B\"\n"+
				"[[storage_class]]\nkind = \"file\"\npath = %q\ncapacity = \"27000B\"\n", dir+"/cache")
			if err := os.WriteFile(configs[i], []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			c.worlds[i].beside = fmt.Appendf(nil, stored, dir+"/cache")
			read := c.worlds[i].read
			c.worlds[i].read = func(ctx context.Context, id int) error {
				source <- struct{}{}
				defer func() { <-source }()
				<-time.After(50 * time.Millisecond)
				return read(ctx, id)
			}
		}
		ranks := c.open(func(m *request.Open) {
			m.ConfigFile, m.Stream.Epochs = configs[m.Rank], 24
			delete(m.Arguments, "memory")
		})
		phase := func(from, to int) (reads int) {
			before, _ := c.read()
			together(ranks, func(r *Rank) { consume(t, r, at{from, 0}, at{to, 0}) })
			after, _ := c.read()
			return after - before
		}
		phase(0, 8)
		time.Sleep(time.Minute) // what no batch has brought is read ahead
		if reads := phase(8, 12); reads > 0 {
			t.Errorf("%d reads from the source although memory and disks hold the dataset", reads)
			for i, r := range ranks {
				t.Errorf("node %d: %+v", i, r.Report().Classes)
			}
		}
		closeAll(ranks)
		c.close()
	})
}
