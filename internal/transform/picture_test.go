package transform

import (
	"bytes"
	"testing"
)

// TestPicture: whatever the type, the layout and the normalising, the picture is that of the list
// without them.
func TestPicture(t *testing.T) {
	sample := encodedPNG(t, 70, 50)
	picture := func(transforms string) []byte {
		p := compiled(t, transforms)
		w := p.Worker()
		defer w.Close()
		dst := make([]byte, p.Output().Bytes())
		if err := w.Apply(dst, sample, Key{Seed: 1, Epoch: 2, Sample: 3}); err != nil {
			t.Fatal(err)
		}
		m, err := p.Picture(dst)
		if err != nil {
			t.Fatal(err)
		}
		return m.Pix
	}
	for _, colours := range []string{"", ", Grayscale()"} {
		plain := "RandomResizedCrop((30, 40))" + colours
		want := picture(plain)
		for _, more := range []string{
			`ToTensor()`, `ToTensor("NHWC")`, `ToTensor(dtype=torch.uint8)`,
			`ToTensor(), Normalize(0.45, 0.22)`,
			`ToTensor(layout="NHWC"), Normalize(0.45, 0.22)`,
			`ToTensor(), ConvertImageDtype(torch.half)`,
			`ToTensor(), ConvertImageDtype(torch.float)`,
		} {
			if !bytes.Equal(picture(plain+", "+more), want) {
				t.Errorf("%s, %s is another picture", plain, more)
			}
		}
		near := picture(plain + `, ToTensor(dtype=torch.bfloat16), Normalize(0.45, 0.22)`)
		for i, b := range want {
			if d := int(b) - int(near[i]); d < -1 || d > 1 {
				t.Fatalf("bfloat16: element %d is %d levels off", i, d)
			}
		}
	}
	p := compiled(t, "Reshape(1, 2, 3)")
	if _, err := p.Picture(make([]byte, 24)); err == nil {
		t.Error("an array has a picture")
	}
	if _, err := compiled(t, "CenterCrop(3)").Picture(nil); err == nil {
		t.Error("nothing has a picture")
	}
}
