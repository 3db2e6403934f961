package catalog

import (
	"bytes"
	"context"
	"testing"

	"github.com/hdmlp/hdmlp/internal/engine/cache"
	"github.com/hdmlp/hdmlp/internal/model/routing"
	"github.com/hdmlp/hdmlp/internal/node/config"
	"github.com/hdmlp/hdmlp/internal/source"
)

// alike is a source of the same version as others in other directories, whose bytes differ.
type alike struct{ fake }

func (s alike) stamp() source.Stamp { return source.Stamp(1<<32 | s.inode) }

func (s alike) Stat(context.Context, int) (source.Stamp, error) { return s.stamp(), nil }

func (s alike) Read(_ context.Context, id int, dst []byte) (source.Stamp, error) {
	copy(dst, bytes.Repeat([]byte{byte(id), byte(s.inode)}, len(dst)))
	return s.stamp(), nil
}

// served returns a sample as the cache serves it.
func served(t *testing.T, c *cache.Cache, id int) (data []byte) {
	t.Helper()
	if _, err := c.Serve(t.Context(), id, routing.Want{}, func(got cache.Copy, _ bool) error {
		data = bytes.Clone(got.Data)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return data
}

// TestCopiesOfADatasetShareNoStore: two datasets that differ only in bytes that their version does
// not cover are open at the same time. Each gets its own bytes, and keeps its own copies.
func TestCopiesOfADatasetShareNoStore(t *testing.T) {
	for name, cfg := range map[string]*config.Config{
		"memory": inMemory(1 << 20),
		"disk": {
			SourceThreads:  1,
			StorageClasses: []config.StorageClass{fileClass(t.TempDir(), 1<<20, 0)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newShelf(t)
			open := c.kinds.Sources[0].Open
			c.kinds.Sources[0].Open = func(ctx context.Context, path string, o source.OpenOptions,
			) (source.Indexed, error) {
				s, err := open(ctx, path, o)
				return alike{s.(fake)}, err
			}
			var datasets [2]*Dataset
			var caches [2]*cache.Cache
			for i := range datasets {
				c.inode = uint64(7 + i)
				datasets[i] = c.open(t, cfg)
				caches[i] = join(t, datasets[i], cfg)
			}
			for range 3 {
				for i, cache := range caches {
					bring(t, cache, 3)
					if data := served(t, cache, 3); data[1] != byte(7+i) {
						t.Errorf("dataset %d gets bytes of dataset %d", i, data[1]-7)
					}
				}
			}
			for i, cache := range caches {
				if samples, _ := cache.SourceReads(); samples != 1 {
					t.Errorf("dataset %d: %d reads", i, samples)
				}
			}
			for _, d := range datasets {
				d.LeaveCache()
				d.Close()
			}
		})
	}
}
