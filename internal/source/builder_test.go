package source

import (
	"math"
	"testing"
)

func TestBuildRefusesInvalidDirectoriesAndSamples(t *testing.T) {
	root := Directory{Class: -1}
	for what, build := range map[string]func(b *Builder){
		"no root":              func(*Builder) {},
		"a sample in the root": func(b *Builder) { b.Directory(root); b.Sample("1", 1, 0, 0) },
		"a class that does not exist": func(b *Builder) {
			b.Directory(root)
			b.Directory(Directory{Path: "a", Class: 2})
		},
		"classes out of order": func(b *Builder) {
			b.Directory(root)
			b.Directory(Directory{Path: "b", Class: 1})
			b.Directory(Directory{Path: "a"})
		},
		"a path out of the root": func(b *Builder) {
			b.Directory(root)
			b.Directory(Directory{Path: "a/../.."})
		},
		"an absolute path": func(b *Builder) {
			b.Directory(root)
			b.Directory(Directory{Path: "/a"})
		},
		"a name with a slash": func(b *Builder) {
			b.Directory(root)
			b.Directory(Directory{Path: "a"})
			b.Sample("../x", 1, 0, 0)
		},
		"a name that is ..": func(b *Builder) {
			b.Directory(root)
			b.Directory(Directory{Path: "a"})
			b.Sample("..", 1, 0, 0)
		},
		"a name that is empty": func(b *Builder) {
			b.Directory(root)
			b.Directory(Directory{Path: "a"})
			b.Sample("", 1, 0, 0)
		},
		"a negative size": func(b *Builder) {
			b.Directory(root)
			b.Directory(Directory{Path: "a"})
			b.Sample("1", -1, 0, 0)
		},
		"too many bytes": func(b *Builder) {
			b.Directory(root)
			b.Directory(Directory{Path: "a"})
			b.Sample("1", math.MaxInt64, 0, 0)
			b.Sample("2", 1, 0, 0)
		},
	} {
		b := NewBuilder([]string{"a", "b"}, nil)
		build(b)
		if x, err := b.Build(); err == nil {
			t.Errorf("%s: %v", what, x)
		}
	}
}
