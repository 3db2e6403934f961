package pixels

import (
	"bytes"
	"encoding/json"
	"image"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// reference runs testdata/reference.py and reads its cases. The test is skipped where the Python
// has not what it takes.
func reference[C any](t *testing.T, kind, needs string) (dir string, cases []C) {
	t.Helper()
	const python = "/usr/bin/python3"
	if err := exec.Command(python, "-c", "import "+needs).Run(); err != nil {
		t.Skipf("%s has no %s: %v", python, needs, err)
	}
	dir = t.TempDir()
	// Read here, too, or a change of the script leaves the test cached.
	read(t, "testdata", "reference.py")
	cmd := exec.Command(python, "testdata/reference.py", dir, kind)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(read(t, dir, "cases.json"), &cases); err != nil {
		t.Fatal(err)
	}
	return dir, cases
}

func read(t *testing.T, dir, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestResizeAsPIL: every filter gives PIL's bytes, whole or in part, in the order of passes of
// either release.
func TestResizeAsPIL(t *testing.T) {
	type testCase struct {
		Src, Out                      string
		W, H, Channels, Width, Height int
		Filter                        Filter
		Order                         Order
		Window                        [4]int
	}
	dir, cases := reference[testCase](t, "resize", "PIL.Image, numpy")
	var r Resizer
	var dst, part Image
	for _, c := range cases {
		src := Image{read(t, dir, c.Src), c.W, c.H, c.Channels, c.W * c.Channels}
		window := image.Rect(c.Window[0], c.Window[1], c.Window[2], c.Window[3])
		want := read(t, dir, c.Out)
		r.Order = c.Order
		r.Resize(&dst, &src, c.Width, c.Height, window, c.Filter)
		if !bytes.Equal(dst.Pix, want) {
			t.Errorf("%+v: %d of %d bytes differ, by up to %d", c, count(dst.Pix, want), len(want),
				most(dst.Pix, want))
		}
		need := Support(c.W, c.H, c.Width, c.Height, window, c.Filter)
		cut := src.Sub(need)
		cut.CopyTo(&part)
		r.ResizePart(&dst, &part, need.Min, c.W, c.H, c.Width, c.Height, window, c.Filter)
		if !bytes.Equal(dst.Pix, want) {
			t.Errorf("%+v: differs if only %v is there", c, need)
		}
	}
	t.Logf("%d cases", len(cases))
}

// TestPackAsTorchvision: every type, layout and flip gives the bytes of torchvision's ToTensor and
// Normalize.
func TestPackAsTorchvision(t *testing.T) {
	type testCase struct {
		Src, Out       string
		W, H, Channels int
		Type           Type
		Layout         Layout
		Flip           Flip
		Unit           bool
		Mean, Std      []float32
	}
	dir, cases := reference[testCase](t, "pack", "PIL.Image, torchvision")
	for _, c := range cases {
		src := Image{read(t, dir, c.Src), c.W, c.H, c.Channels, c.W * c.Channels}
		scale := Levels
		if c.Unit {
			scale = Quotient
		}
		p, err := NewPacker(Target{
			Type:   c.Type,
			Layout: c.Layout,
			Scale:  scale,
			Mean:   c.Mean,
			Std:    c.Std,
		})
		if err != nil {
			t.Fatal(err)
		}
		dst := make([]byte, p.Size(c.W, c.H, c.Channels))
		p.Pack(dst, &src, c.Flip)
		if want := read(t, dir, c.Out); !bytes.Equal(dst, want) {
			t.Errorf("%+v: %d of %d bytes differ", c, count(dst, want), len(want))
		}
	}
	t.Logf("%d cases", len(cases))
}

// count returns how many bytes differ, most by how much.
func count(a, b []byte) (n int) {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			n++
		}
	}
	return n
}

func most(a, b []byte) (d int) {
	for i := range min(len(a), len(b)) {
		d = max(d, int(a[i])-int(b[i]), int(b[i])-int(a[i]))
	}
	return d
}
